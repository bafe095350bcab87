// ulp bench: latency and throughput of engines and LibTorch models, in turn; the steps of an engine by time.
#include "ulp/app/bench/bench.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"

namespace ulp::cli {

namespace {

struct BenchFlags : CommonFlags {
  app::BenchOptions options;
  ScriptShape shape;
  std::string trace;
};

void run(BenchFlags& flags) {
  apply(flags);
  flags.options.threads = flags.threads;
  flags.options.script_spec = flags.shape.spec();
  if (!flags.trace.empty()) check_writable(flags.trace);
  flags.options.trace = flags.trace;
  const std::vector<report::Table> tables = app::bench(flags.options);
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

void add_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  app::BenchOptions& options = flags->options;
  CLI::App* command =
      add_command(app, "bench", "Latency and throughput of engines and models, measured in turn",
                  "  ulp bench model.safetensors model.fp32.ulp model.int8.ulp\n"
                  "  ulp bench model.int8.ulp --batch 1,8,64 --threads 1 --profile\n"
                  "  ulp bench model.int8.ulp --trace steps.json\n"
                  "  ulp bench model.int8.ulp --contexts 8\n"
                  "  ulp bench scripted.pt --shape 3,224,224 --pieces --profile\n"
                  "  ulp bench amp     (training in mixed precision: see `ulp bench amp --help`)\n",
                  *flags);
  command->add_option(
      "models", options.models,
      "Engine files, files of `ulp train`, TorchScript, ONNX and .pt2 files, published weights");
  command->add_option("--batch", options.batches, "Batch sizes")
      ->delimiter(',')
      ->check(positive())
      ->capture_default_str();
  command->add_option("--rounds", options.measure.rounds, "Rounds of about 0.2 s for each model")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--profile", options.profile,
                    "Show the time of each step of the engines, at the largest batch, what bounds it and how "
                    "close it comes");
  command->add_option("--trace", flags->trace,
                      "Write the steps of the engines as a file for Perfetto (ui.perfetto.dev)");
  command->add_flag(
      "--pieces,--fallback", options.pieces,
      "Run models that are no engines in pieces as well: engines for the ops they have, LibTorch for "
      "the rest");
  command
      ->add_option("--contexts", options.contexts,
                   "Call each engine from this many threads at a time as well")
      ->check(positive());
  add_error_budget(*command, options.error_budget);
  add_measuring_limit(*command, options.max_measuring_seconds);
  flags->shape.add_to(*command);
  add_bench_amp(*command);
  command->callback([command, flags] {
    if (!command->get_subcommands().empty()) return;
    if (flags->options.models.empty()) throw CLI::RequiredError("models");
    run(*flags);
  });
}

const Command kBenchCommand("bench", add_bench);

}  // namespace

}  // namespace ulp::cli
