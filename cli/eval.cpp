// ulp eval: accuracy of a model or an engine over the test images.
#include <torch/torch.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/train/data.h"
#include "ulp/train/runnable.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string model;
  std::string data = "fashion-mnist";
  int64_t batch = 250;
  ScriptShape shape;
};

void run(const Flags& flags) {
  apply(flags);
  const train::Runnable model = train::load_runnable(flags.model, flags.shape.spec(), flags.threads);
  const io::ImageDataset data = train::load_images(flags.data, io::Split::test, model.spec);
  report::Progress progress("evaluate", data.size(), {.unit = "image"});
  const auto begin = std::chrono::steady_clock::now();
  const train::Accuracy accuracy =
      train::evaluate(model.forward, data, flags.batch, [&](int64_t done) { progress.update(done); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  progress.finish();
  if (flags.json) {
    return print_json({{"file", flags.model},
                       {"kind", model.kind},
                       {"correct", accuracy.correct},
                       {"total", accuracy.total},
                       {"accuracy_percent", accuracy.percent()},
                       {"seconds", seconds}});
  }
  std::cout << flags.model << " (" << model.kind << "): " << accuracy.percent() << " % of " << accuracy.total
            << " test images, " << seconds << " s\n";
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = add_command(app, "eval", "Accuracy of a model or an engine over the test images",
                                  "  ulp eval model.safetensors\n  ulp eval model.int8.ulp --json\n", *flags);
  command->add_option("model", flags->model, "An engine file, a file of `ulp train`, or a TorchScript file")
      ->required();
  add_data_option(*command, flags->data);
  command->add_option("--batch", flags->batch, "Images at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
