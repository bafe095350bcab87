// ulp check: what works with a model along the whole road, and what stops it where.
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/recipe_file.h"
#include "cli/stage_bars.h"
#include "ulp/app/check/road_report.h"
#include "ulp/app/model_io/inspect.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/train/workload.h"

namespace ulp::cli {

namespace {

struct CheckFlags : CommonFlags {
  std::string model, json_file;
  std::vector<std::string> goals;
  int64_t batch = 2;
  ScriptShape shape;
};

/// `ulp check --json MODEL` is a flag and a model, as with other commands.
void sort_out(CheckFlags& flags, const CLI::App& command) {
  flags.json = command.count("--json") > 0;
  if (flags.model.empty()) std::swap(flags.model, flags.json_file);
  if (flags.model.empty()) throw CLI::RequiredError("model");
}

/// A network by its name, or a file of any kind.
std::shared_ptr<graph::GraphModule> open(const CheckFlags& flags) {
  const app::ModelSpec spec = flags.shape.spec();
  std::error_code error;
  if (app::is_reference_network(flags.model)) return app::graph_of(flags.model, spec);
  const std::vector<std::string> names = app::workload_names();
  const bool named = std::ranges::find(names, flags.model) != names.end();
  if (!named || std::filesystem::exists(flags.model, error))
    return app::load_any_model_file(flags.model, spec).graph;
  app::expect_named_sizes(spec, flags.model);
  const app::Workload known = app::find_workload(flags.model, {});
  const app::ModelSpec sizes{.name = known.name, .kind = known.kind, .max_length = app::usual_length(known)};
  return std::dynamic_pointer_cast<graph::GraphModule>(app::captured(known.make(), sizes).module);
}

/// Exit code 1 where a goal that was named does not work.
void expect_within_reach(const RoadReport& report) {
  std::string names;
  size_t count = 0;
  for (const RoadStep& step : report.steps) {
    if (step.works) continue;
    names += (names.empty() ? "" : ", ") + step.goal;
    ++count;
  }
  if (count == 0) return;
  std::cout.flush();
  throw EndWith{kFailed, std::to_string(count) + " of " + std::to_string(report.steps.size()) +
                             (report.steps.size() == 1 ? " goal" : " goals") + " out of reach: " + names};
}

void run(CheckFlags& flags, const CLI::App& command) {
  sort_out(flags, command);
  as_usage([&] { return road_goals(flags.goals); });
  if (!flags.json_file.empty()) {
    std::error_code error;
    if (std::filesystem::equivalent(flags.model, flags.json_file, error) && !error)
      throw CLI::ValidationError("--json",
                                 "'" + flags.json_file + "' is what would be read: expected another file");
    check_writable(flags.json_file);
  }
  apply(flags);
  const auto model = open(flags);
  StageBars bars;
  const RoadReport report = road_report(
      *model, {.goals = flags.goals,
               .batch = flags.batch,
               .progress = [&](const std::string& goal, int64_t done, int64_t total) {
                 bars.show({.title = "checking", .unit = "goal", .done = done, .total = total, .note = goal});
               }});
  bars = {};
  write_text(flags.json_file, report.to_json() + "\n");
  if (flags.json && flags.json_file.empty()) {
    std::cout << report.to_json() << '\n';
  } else {
    std::cout << report;
  }
  if (!flags.goals.empty()) expect_within_reach(report);
}

std::string goals_help() {
  std::ostringstream text;
  text << "Goals that are tried, with exit code 1 where one is out of reach; all are tried without it. train "
          "is "
          "train:fp32, and '*' any run of characters (train:*):";
  for (const RoadGoal& goal : road_goals()) text << "\n" << goal.name << ": " << goal.what;
  return text.str();
}

void add_check(CLI::App& app) {
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* command =
      add_command(app, "check", "Try a model on the whole road: training, int8, engines, pruning, exports",
                  "  ulp check model.onnx\n"
                  "  ulp check model.safetensors --for engine,int8,onnx\n"
                  "  ulp check scripted.pt --shape 3,224,224 --json report.json\n"
                  "  ulp check resnet20 --for train,qat\n",
                  *flags);
  command->remove_option(command->get_option("--json"));
  command
      ->add_option("--json", flags->json_file,
                   "Print the result as JSON on stdout; with FILE behind it, write it there beside the page")
      ->expected(0, 1)
      ->type_name("[FILE]");
  command->add_option(
      "model", flags->model,
      "A file of `ulp train`, of save_graph(), a TorchScript, ONNX or .pt2 file, published weights, or "
      "a network's name");
  command->add_option("--for", flags->goals, goals_help())
      ->delimiter(',')
      ->type_name("GOAL,...")
      ->allow_extra_args(false);
  command->add_option("--batch", flags->batch, "Items in a batch that it is tried on")
      ->check(positive())
      ->capture_default_str();
  flags->shape.add_to(*command);
  command->callback([flags, command] { run(*flags, *command); });
}

const Command kCheckCommand("check", add_check);

}  // namespace

}  // namespace ulp::cli
