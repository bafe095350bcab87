// ulp eval: how well a model or an engine does on the test part of a data set.
#include "ulp/app/run/eval.h"

#include <chrono>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/lora_flags.h"
#include "cli/model_flags.h"

namespace ulp::cli {

namespace {

struct EvalFlags : CommonFlags {
  app::EvalOptions options;
  ScriptShape shape;
};

void run(EvalFlags& flags) {
  apply(flags);
  flags.options.threads = flags.threads;
  flags.options.script_spec = flags.shape.spec();
  const app::Trial trial = app::make_trial(flags.options);
  report::Progress progress("evaluate", trial.batches->samples(), {.unit = trial.unit});
  const auto begin = std::chrono::steady_clock::now();
  const train::Accuracy accuracy =
      train::evaluate(trial.forward, *trial.batches, [&](int64_t done) { progress.update(done); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  progress.finish();
  if (flags.json) {
    return print_json({{"file", flags.options.model},
                       {"kind", trial.kind},
                       {"correct", accuracy.correct},
                       {"total", accuracy.total},
                       {"accuracy_percent", accuracy.percent()},
                       {"loss", accuracy.loss},
                       {"seconds", seconds}});
  }
  std::cout << flags.options.model << " (" << trial.kind
            << "): " << describe(accuracy, trial.spec, trial.unit) << ", " << seconds << " s\n";
}

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      add_command(app, "eval", "Accuracy (text: perplexity) of a model or an engine over test data",
                  "  ulp eval model.safetensors\n  ulp eval model.int8.ulp --json\n"
                  "  ulp eval gpt2.safetensors --data book.txt\n",
                  *flags);
  command
      ->add_option(
          "model", flags->options.model,
          "An engine file, a file of `ulp train`, a TorchScript, ONNX or .pt2 file, or published weights")
      ->required();
  add_any_data_option(*command, flags->options.data);
  command->add_option("--batch", flags->options.batch, "Samples at a time")
      ->check(positive())
      ->capture_default_str();
  add_error_budget(*command, flags->options.error_budget);
  add_measuring_limit(*command, flags->options.max_measuring_seconds);
  add_adapter_flag(*command, flags->options.adapter);
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

const Command kEvalCommand("eval", add_eval);

}  // namespace

}  // namespace ulp::cli
