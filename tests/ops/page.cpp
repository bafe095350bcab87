#include "page.h"

#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "trial.h"

namespace ulp::test {

namespace {

struct Row {
  const Sample* sample;
  Trial trial;
};

const char* word(const Verdict& verdict) {
  switch (verdict.outcome) {
    case Ending::works:
      return "yes";
    case Ending::fails:
      return "no";
    default:
      return "-";
  }
}

const char* quantized_word(const Trial& trial) {
  if (trial.quantized.outcome != Ending::works) return word(trial.quantized);
  return trial.integers ? "integers" : "float";
}

/// In a cell of a table.
std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) made += c == '|' ? "\\|" : std::string(1, c);
  return made;
}

/// What stands in the way first.
std::string obstacle(const Trial& trial) {
  for (const Verdict* verdict :
       {&trial.captured, &trial.trains, &trial.f32, &trial.bf16, &trial.quantized, &trial.int8}) {
    if (verdict->outcome == Ending::fails) return verdict->why;
  }
  return "";
}

std::string row_text(const Row& row) {
  const Trial& t = row.trial;
  std::string op = std::string(row.sample->op).substr(6);
  if (row.sample->reach != Reach::directly) op += " *";
  std::ostringstream out;
  out << "| " << op << " | `" << escaped(row.sample->call) << "` | " << word(t.captured) << " | "
      << word(t.trains) << " | " << quantized_word(t) << " | " << word(t.f32) << " | " << word(t.bf16)
      << " | " << word(t.int8) << " |\n";
  return out.str();
}

/// How many ops have a row in which something works.
size_t count(const std::vector<Row>& rows, const std::function<bool(const Trial&)>& works) {
  std::set<std::string> ops;
  for (const Row& row : rows) {
    if (works(row.trial)) ops.insert(row.sample->op);
  }
  return ops.size();
}

std::string summary(const std::vector<Row>& rows, size_t core) {
  const auto worked = [&](Verdict Trial::*column) {
    return count(rows, [=](const Trial& trial) { return (trial.*column).outcome == Ending::works; });
  };
  std::ostringstream out;
  out << "| | ops |\n|---|---:|\n| tagged as core | " << core << " |\n| tried | "
      << count(rows, [](const Trial&) { return true; }) << " |\n| captured | " << worked(&Trial::captured)
      << " |\n| trained | " << worked(&Trial::trains) << " |\n| in static int8 | "
      << worked(&Trial::quantized) << " |\n| of these in integers | "
      << count(rows, [](const Trial& trial) { return trial.integers; }) << " |\n| engine fp32 | "
      << worked(&Trial::f32) << " |\n| engine bf16 | " << worked(&Trial::bf16) << " |\n| engine int8 | "
      << worked(&Trial::int8) << " |\n";
  return out.str();
}

std::vector<std::string> not_tried() {
  std::vector<std::string> names = core_ops();
  std::erase_if(names,
                [](const std::string& name) { return std::ranges::count(samples(), name, &Sample::op) > 0; });
  return names;
}

constexpr const char* kIntroduction =
    R"(The Core ATen opset is what `torch.export` makes of a model. Each of its ops was called in a small
network, and the network was captured, trained, quantized and run. This page is what came of it.
`build/release/bin/test_ops --page docs/ops.md` makes it again. `test_ops` fails when the page says anything
else than what it finds. The calls are in `tests/ops/samples.cpp`.

- **call.** `x` is the input, with the batch first; `l.weight` is a parameter. A star (*) stands at calls of
  which LibTorch or `torch.export` makes the op: it is what a model says, and what capture records.
- **captured.** In eval mode the graph gives the model's bits at two batch sizes.
- **trains.** In train mode, too, with the same gradients. A dash: LibTorch has none.
- **static int8.** The call stands between two layers. *integers*: everything is in 8 bits. *float*: the
  layers are, and the call, or something in it, computes in float between them. A dash: its result cannot be
  the input of a layer.
- **engine.** Lowered, the engine gives the graph's numbers: within rounding in fp32, at 25 dB in bf16. The
  int8 column is the quantized network, at 15 dB of the quantized graph. A dash: there is nothing to lower.
)";

}  // namespace

std::string made_with() {
  return std::string("Made with LibTorch ") + TORCH_VERSION + ".";
}

std::string ops_page() {
  std::vector<Row> rows;
  for (const Sample& sample : samples()) rows.push_back({&sample, try_call(sample)});
  std::ostringstream out;
  out << "# Core ATen ops\n\n"
      << kIntroduction << "\n"
      << made_with() << "\n\n"
      << summary(rows, core_ops().size());
  out << "\n## Each op\n\n| op | call | captured | trains | static int8 | engine fp32 | bf16 | int8 |\n"
      << "|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows) out << row_text(row);
  out << "\n## What stands in the way\n\nThe first message of each row above with a *no*.\n\n";
  for (const Row& row : rows) {
    const std::string why = obstacle(row.trial);
    if (!why.empty()) out << "- `" << row.sample->call << "`: " << why << "\n";
  }
  out << "\n## Not tried\n\n";
  for (const std::string& name : not_tried()) out << "- " << name.substr(6) << "\n";
  return out.str();
}

}  // namespace ulp::test
