// ulp eval: how well a model or an engine does on the test part of a data set.
#include <torch/types.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/app/data.h"
#include "ulp/app/runnable.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string model;
  std::string data = "fashion-mnist";
  int64_t batch = 250;
  ScriptShape shape;
};

/// A network and what it is to be tried on.
struct Trial {
  app::ModelSpec spec;
  std::string kind;
  const char* unit = "image";
  train::Forward forward;
  std::unique_ptr<train::BatchStream> batches;
};

Trial make_trial(const Flags& flags) {
  Trial trial;
  const auto stored = app::read_model_spec(flags.model);
  if (stored && stored->kind != app::NetworkKind::image) {
    trial.spec = *stored;
    trial.kind = "LibTorch";
    trial.forward = app::load_network(flags.model).forward;
  } else {
    const app::Runnable model = app::load_runnable(flags.model, flags.shape.spec(), flags.threads);
    trial.spec = model.spec;
    trial.kind = model.kind;
    trial.forward = [model](const train::TaskBatch& batch) { return model.forward(batch.inputs); };
  }
  const bool folder = flags.data == "fashion-mnist" || std::filesystem::is_directory(flags.data);
  if (folder && trial.spec.kind == app::NetworkKind::image) {  // no need to read the training images
    trial.batches = train::image_stream(app::load_images(flags.data, io::Split::test, trial.spec),
                                        {.batch = flags.batch});
  } else {
    const app::TaskData data = app::load_data(flags.data, /*length=*/0, &trial.spec);
    trial.unit = data.unit;
    trial.batches = data.stream(io::Split::test, {.batch = flags.batch});
  }
  return trial;
}

void run(const Flags& flags) {
  apply(flags);
  const Trial trial = make_trial(flags);
  report::Progress progress("evaluate", trial.batches->samples(), {.unit = trial.unit});
  const auto begin = std::chrono::steady_clock::now();
  const train::Accuracy accuracy =
      train::evaluate(trial.forward, *trial.batches, [&](int64_t done) { progress.update(done); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  progress.finish();
  if (flags.json) {
    return print_json({{"file", flags.model},
                       {"kind", trial.kind},
                       {"correct", accuracy.correct},
                       {"total", accuracy.total},
                       {"accuracy_percent", accuracy.percent()},
                       {"loss", accuracy.loss},
                       {"seconds", seconds}});
  }
  std::cout << flags.model << " (" << trial.kind << "): " << describe(accuracy, trial.spec.kind, trial.unit)
            << ", " << seconds << " s\n";
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      add_command(app, "eval", "Accuracy (text: perplexity) of a model or an engine over test data",
                  "  ulp eval model.safetensors\n  ulp eval model.int8.ulp --json\n"
                  "  ulp eval gpt2.safetensors --data book.txt\n",
                  *flags);
  command->add_option("model", flags->model, "An engine file, a file of `ulp train`, or a TorchScript file")
      ->required();
  add_any_data_option(*command, flags->data);
  command->add_option("--batch", flags->batch, "Samples at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
