// ulp bench: latency and throughput of engines and LibTorch models, in turn; the steps of an engine by time.
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/app/runnable.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"
#include "ulp/measure/measure.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::vector<std::string> models;
  std::vector<int64_t> batches = {1, 64};
  int rounds = 11;
  bool profile = false;
  ScriptShape shape;
};

at::Tensor random_inputs(const app::Runnable& model, int64_t batch) {
  torch::manual_seed(0);
  if (model.engine) return random_input(model.engine->inputs().front(), batch);
  return torch::randn({batch, model.spec.in_channels, model.spec.image_size, model.spec.image_size});
}

measure::Candidate candidate(const app::Runnable& model, const std::string& name, int64_t largest) {
  const at::Tensor images = random_inputs(model, largest);
  if (!model.engine) {
    const at::Tensor nhwc = images.contiguous(at::MemoryFormat::ChannelsLast);
    return {name, [forward = model.forward, nhwc](int64_t batch) {
              const c10::InferenceMode inference;
              forward(nhwc.narrow(0, 0, batch));
            }};
  }
  const auto& shape = model.engine->outputs().front().shape;
  const int64_t items = c10::multiply_integers(shape.begin() + 1, shape.end());
  const at::Tensor output = torch::empty({largest, items});
  return {name, [engine = model.engine, images, output](int64_t batch) {
            const void* in = images.const_data_ptr();
            void* out = output.mutable_data_ptr();
            engine->run(batch, {&in, 1}, {&out, 1});
          }};
}

report::Table profile_table(const std::string& name, runtime::Engine& engine, int64_t batch,
                            const at::Tensor& images) {
  const auto& shape = engine.outputs().front().shape;
  at::Tensor output = torch::empty({batch, c10::multiply_integers(shape.begin() + 1, shape.end())});
  const void* in = images.const_data_ptr();
  void* out = output.mutable_data_ptr();
  engine.profile(batch, {&in, 1}, {&out, 1});
  const auto steps = engine.profile(batch, {&in, 1}, {&out, 1});
  double total = 0;
  for (const auto& step : steps) total += step.seconds;
  report::Table table{
      .title = name + ", batch " + std::to_string(batch) + ", by step",
      .columns = {{"step"}, {"op"}, {"attributes"}, {"kernel"}, {"output"}, {"time", "us"}, {"share", "%"}}};
  for (const auto& step : steps) {
    table.add_row({step.step, step.op, step.attributes, step.kernel, step.output_shape, step.seconds * 1e6,
                   100 * step.seconds / total});
  }
  return table;
}

void run(const Flags& flags) {
  apply(flags);
  std::vector<app::Runnable> models;
  std::vector<measure::Candidate> candidates;
  const int64_t largest = *std::max_element(flags.batches.begin(), flags.batches.end());
  for (const std::string& path : flags.models) {
    models.push_back(app::load_runnable(path, flags.shape.spec(), flags.threads));
    candidates.push_back(candidate(models.back(), path, largest));
  }
  report::Table table{.title = "Speed",
                      .columns = {{"model"},
                                  {"runs on"},
                                  {"batch"},
                                  {"median", "ms"},
                                  {"min", "ms"},
                                  {"max", "ms"},
                                  {"throughput", "images/s", report::Better::higher, 0},
                                  {"against the first", "x"}}};
  for (int64_t batch : flags.batches) {
    const auto timings = measure::time_in_turns(candidates, batch, {.rounds = flags.rounds});
    for (size_t i = 0; i < timings.size(); ++i) {
      table.add_row({candidates[i].name, models[i].kind, static_cast<double>(batch), timings[i].median * 1e3,
                     timings[i].minimum * 1e3, timings[i].maximum * 1e3,
                     static_cast<double>(batch) / timings[i].median, timings[0].median / timings[i].median});
    }
  }
  std::vector<report::Table> tables = {std::move(table)};
  for (size_t i = 0; flags.profile && i < models.size(); ++i) {
    if (models[i].engine)
      tables.push_back(
          profile_table(flags.models[i], *models[i].engine, largest, random_inputs(models[i], largest)));
  }
  if (flags.json) {
    nlohmann::json json;
    for (const report::Table& one : tables) json[one.title] = to_json(one);
    return print_json(json);
  }
  for (const report::Table& one : tables) {
    print_table(one);
    std::cout << '\n';
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      add_command(app, "bench", "Latency and throughput of engines and models, measured in turn",
                  "  ulp bench model.safetensors model.fp32.ulp model.int8.ulp\n"
                  "  ulp bench model.int8.ulp --batch 1,8,64 --threads 1 --profile\n"
                  "  ulp bench amp     (training in mixed precision: see `ulp bench amp --help`)\n",
                  *flags);
  command->add_option("models", flags->models, "Engine files, files of `ulp train`, TorchScript files");
  command->add_option("--batch", flags->batches, "Batch sizes")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Rounds of about 0.2 s for each model")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--profile", flags->profile,
                    "Show the time of each step of the engines, at the largest batch");
  flags->shape.add_to(*command);
  add_bench_amp(*command);
  command->callback([command, flags] {
    if (!command->get_subcommands().empty()) return;
    if (flags->models.empty()) throw CLI::RequiredError("models");
    run(*flags);
  });
}

}  // namespace ulp::cli
