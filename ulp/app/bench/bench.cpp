#include "ulp/app/bench/bench.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "ulp/app/bench/bench_parts.h"
#include "ulp/app/bench/step_profile.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"

namespace ulp::app {

at::Tensor random_inputs(const InferenceModel& model, int64_t batch) {
  torch::manual_seed(0);
  if (model.engine) return random_input(model.engine->inputs().front(), batch);
  return torch::randn(model.spec.batch_sizes(batch));
}

at::Tensor empty_output(const runtime::Engine& engine, int64_t batch) {
  return torch::empty({static_cast<int64_t>(runtime::byte_count(engine.outputs().front(), batch))},
                      torch::kByte);
}

namespace {

using report::Better;
using report::Cell;

constexpr int kProfileRuns = 5;

measure::Candidate candidate(const InferenceModel& model, const std::string& name, int64_t largest) {
  const at::Tensor images = random_inputs(model, largest);
  if (!model.engine) {
    const bool as_given = model.pieces != nullptr ||
                          images.dim() != 4;  // engines take plain order, LibTorch's layers like the other
    const at::Tensor held = as_given ? images : images.contiguous(at::MemoryFormat::ChannelsLast);
    return {name,
            [forward = model.forward, held](int64_t batch) {
              const c10::InferenceMode inference;
              forward(held.narrow(0, 0, batch));
            },
            at::get_num_threads()};
  }
  return {name,
          [engine = model.engine, images, output = empty_output(*model.engine, largest)](int64_t batch) {
            const void* in = images.const_data_ptr();
            void* out = output.mutable_data_ptr();
            engine->run(batch, {&in, 1}, {&out, 1});
          },
          model.engine->threads()};
}

report::Table pieces_table(const std::string& name, const InferenceModel& model, int64_t batch) {
  const at::Tensor images = random_inputs(model, batch);
  model.pieces->run({images});
  const std::vector<PartitionInfo> pieces = model.pieces->profile({images});
  double total = 0;
  for (const PartitionInfo& piece : pieces) total += piece.seconds;
  report::Table table{.title = name + ", batch " + std::to_string(batch) + ", by piece",
                      .columns = {{"runs on"},
                                  {"nodes"},
                                  {"because of"},
                                  {"passes in and out", "KB"},
                                  {"time", "us"},
                                  {"share", "%"}}};
  for (const PartitionInfo& piece : pieces) {
    std::string why;
    for (const std::string& reason : piece.why) why += (why.empty() ? "" : "; ") + reason;
    table.add_row({piece.engine ? "engine" : "LibTorch", static_cast<double>(piece.nodes),
                   why.empty() ? Cell() : Cell(why), static_cast<double>(piece.bytes) / 1e3,
                   piece.seconds * 1e6, 100 * piece.seconds / total});
  }
  return table;
}

report::Table empty_speed_table() {
  return {.title = "Speed",
          .columns = {{"model"},
                      {"runs on"},
                      {"batch"},
                      {"median", "ms"},
                      {"min", "ms"},
                      {"max", "ms"},
                      {"throughput", "images/s", Better::higher, 0},
                      {"against the first", "x"},
                      {"others took", "%", Better::none, 0}}};
}

/// The rows of one batch size.
void add_rows(report::Table& table, const std::vector<InferenceModel>& models,
              const std::vector<measure::Candidate>& candidates, int64_t batch,
              const std::vector<measure::Timing>& timings) {
  const measure::Timing& first = timings.front();
  for (size_t i = 0; i < timings.size(); ++i) {
    const measure::Timing& time = timings[i];
    table.add_row({candidates[i].name, models[i].kind, static_cast<double>(batch), time.median * 1e3,
                   time.minimum * 1e3, time.maximum * 1e3, static_cast<double>(batch) / time.median,
                   first.median / time.median, time.others ? Cell(100 * *time.others) : Cell()});
    if (measure::is_disturbed(time.others)) {
      table.mark_last("median", time.time_mark());
      table.mark_last("throughput", time.mark());
    }
    const measure::Timing& busier = time.others < first.others ? first : time;
    if (measure::is_disturbed(busier.others)) table.mark_last("against the first", busier.mark());
  }
}

}  // namespace

std::vector<report::Table> bench(const BenchOptions& options) {
  if (options.models.empty()) fail("app.bench", "expected at least one model, got none");
  if (options.batches.empty()) fail("app.bench", "expected at least one batch size, got none");
  std::vector<InferenceModel> models;
  std::vector<measure::Candidate> candidates;
  const int64_t largest = *std::max_element(options.batches.begin(), options.batches.end());
  for (const std::string& path : options.models) {
    models.push_back(load_inference_model(path, options.script_spec,
                                          {.threads = options.threads,
                                           .error_budget = options.error_budget,
                                           .max_measuring_seconds = options.max_measuring_seconds}));
    if (models.back().graph) expect_sample_input(*models.back().graph, path);
  }
  const bool traced = !options.trace.empty();
  const bool engines =
      std::ranges::any_of(models, [](const InferenceModel& model) { return model.engine != nullptr; });
  if (traced && !engines) fail("app.bench", "expected an engine to trace, got none");
  std::vector<std::string> names = options.models;
  for (size_t i = 0; options.pieces && i < options.models.size(); ++i) {
    if (models[i].engine) continue;
    models.push_back(as_partitioned(models[i], {.max_measuring_seconds = options.max_measuring_seconds}));
    names.push_back(names[i]);
  }
  for (size_t i = 0; i < models.size(); ++i) candidates.push_back(candidate(models[i], names[i], largest));
  std::vector<report::Table> tables = {empty_speed_table()};
  for (const int64_t batch : options.batches) {
    add_rows(tables.front(), models, candidates, batch,
             measure::time_in_turns(candidates, batch, options.measure));
  }
  if (options.contexts > 0) tables.push_back(callers_table(models, options));
  std::optional<measure::Peaks> peaks;
  std::vector<NamedProfile> profiles;
  if (engines && (options.profile || traced))
    peaks = measure::measure_peaks({.threads = options.threads, .quick = true});
  for (size_t i = 0; (options.profile || traced) && i < models.size(); ++i) {
    if (models[i].engine) {
      profiles.push_back({names[i] + ", batch " + std::to_string(largest),
                          profile_steps(*models[i].engine, largest, kProfileRuns)});
      tables.push_back(profile_table(profiles.back().name + ", by step", profiles.back().parts, *peaks));
    }
    if (models[i].pieces) tables.push_back(pieces_table(names[i], models[i], largest));
  }
  if (traced) write_trace(options.trace, profiles, *peaks);
  return tables;
}

}  // namespace ulp::app
