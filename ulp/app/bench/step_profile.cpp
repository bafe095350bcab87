#include "ulp/app/bench/step_profile.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/lower/evaluate.h"

namespace ulp::app {

namespace {

using report::Cell;

/// What run() reads and writes.
struct Buffers {
  std::vector<at::Tensor> held;
  std::vector<const void*> in;
  std::vector<void*> out;

  /// Ids are below `ids`.
  Buffers(const runtime::Engine& engine, int64_t batch, int64_t ids) {
    torch::manual_seed(0);
    for (const runtime::TensorInfo& info : engine.inputs()) {
      held.push_back(random_input(info, batch));
      if (!held.back().is_floating_point()) held.back().random_(0, ids);
      in.push_back(held.back().const_data_ptr());
    }
    for (const runtime::TensorInfo& info : engine.outputs()) {
      held.push_back(torch::empty({static_cast<int64_t>(runtime::byte_count(info, batch))}, torch::kByte));
      out.push_back(held.back().mutable_data_ptr());
    }
  }
};

/// Random ids, so that rows of tables come from all over them: of as large a range as the engine takes. Runs
/// it once.
Buffers usable_buffers(runtime::Engine& engine, int64_t batch) {
  for (const int64_t ids : {16384, 256}) {
    Buffers buffers(engine, batch, ids);
    engine.rewind();
    try {
      engine.run(batch, buffers.in, buffers.out);
      return buffers;
    } catch (const Error&) {  // ids outside of a table
    }
  }
  return Buffers(engine, batch, 1);
}

}  // namespace

bool Repetitions::next() {
  check_interrupted();
  constexpr std::chrono::milliseconds kUsual{500};
  return done_++ < least_ || std::chrono::steady_clock::now() - start_ < kUsual;
}

std::vector<ProfiledPart> profile_steps(runtime::Engine& engine, int64_t batch, int runs) {
  const Buffers buffers = usable_buffers(engine, batch);
  const auto run = [&] {
    engine.rewind();
    return engine.profile(batch, buffers.in, buffers.out);
  };
  std::vector<runtime::StepProfile> best = run();
  for (runtime::StepProfile& step : best) step.seconds = 1e9;  // the first run warmed up
  for (Repetitions repetitions(runs); repetitions.next();) {
    const std::vector<runtime::StepProfile> steps = run();
    for (size_t s = 0; s < steps.size(); ++s) best[s].seconds = std::min(best[s].seconds, steps[s].seconds);
  }
  std::vector<ProfiledPart> parts;
  double start = 0;
  for (const runtime::StepProfile& step : best) {
    parts.push_back({step.step, step.op, step.attributes, step.kernel, step.output_shape, step.note, start,
                     step.seconds, step.work});
    start += step.seconds;
  }
  return parts;
}

double constant_bytes(const std::vector<ProfiledPart>& parts) {
  double bytes = 0;
  for (const ProfiledPart& part : parts) bytes += part.work.constant_bytes;
  return bytes;
}

report::Table profile_table(const std::string& title, const std::vector<ProfiledPart>& parts,
                            const measure::Peaks& peaks) {
  report::Table table{.title = title,
                      .caption =
                          "Bytes are compulsory traffic, counted from shapes. Shares are of the machine's "
                          "measured peak for the "
                          "numbers multiplied, and of the bandwidth of the memory that the bytes come from.",
                      .columns = {{"step"},
                                  {"op"},
                                  {"attributes"},
                                  {"kernel"},
                                  {"output"},
                                  {"time", "us"},
                                  {"share", "%"},
                                  {"G/s", "", report::Better::none, 1},
                                  {"GB/s", "", report::Better::none, 1},
                                  {"bound"},
                                  {"of the bound", "%", report::Better::none, 0}}};
  const bool notes = std::ranges::any_of(parts, [](const auto& part) { return !part.note.empty(); });
  if (notes) table.columns.push_back({"note"});
  double total = 0;
  for (const ProfiledPart& part : parts) total += part.seconds;
  const measure::Surroundings around{constant_bytes(parts)};
  for (const ProfiledPart& part : parts) {
    const measure::RooflinePoint placed = measure::roofline_point(part.work, part.seconds, peaks, around);
    const bool works = part.work.bytes() > 0;
    std::vector<Cell> row = {part.name,
                             part.op,
                             part.attributes,
                             part.kernel,
                             part.shape,
                             part.seconds * 1e6,
                             100 * part.seconds / total,
                             works ? Cell(placed.operations / 1e9) : Cell(),
                             works ? Cell(placed.bandwidth / 1e9) : Cell(),
                             works ? Cell(measure::bound_text(placed)) : Cell(),
                             works ? Cell(100 * placed.share()) : Cell()};
    if (notes) row.push_back(part.note.empty() ? Cell() : Cell(part.note));
    table.add_row(std::move(row));
  }
  return table;
}

}  // namespace ulp::app
