// ulp train: trains a reference network, with checkpoints that continue bit for bit.
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/amp/precision.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/models/registry.h"
#include "ulp/train/data.h"
#include "ulp/train/trainer.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string model = "resnet14";
  std::string data = "fashion-mnist";
  std::string out, checkpoint;
  int64_t checkpoint_every = 0;
  bool resume = false;
  train::TrainOptions options;
};

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const amp::Precision& precision : amp::precisions()) names.emplace_back(precision.name);
  return names;
}

void check(const Flags& flags) {
  flags.options.validate();
  if (!flags.out.empty()) check_writable(flags.out);
  if (!flags.checkpoint.empty()) check_writable(flags.checkpoint);
  if (flags.checkpoint.empty() && (flags.resume || flags.checkpoint_every > 0)) {
    throw CLI::ValidationError("--resume and --checkpoint-every need --checkpoint FILE");
  }
}

/// Trains to the end; on Ctrl-C saves the checkpoint, if one was asked for, and throws Interrupted.
double run_steps(const Flags& flags, train::Trainer& trainer) {
  const int64_t every = flags.checkpoint_every > 0 ? flags.checkpoint_every : trainer.steps_per_epoch();
  double loss = 0;
  report::Progress progress("train " + flags.options.precision, trainer.total_steps(), {.unit = "step"});
  while (!trainer.done()) {
    const train::StepInfo info = trainer.step();
    loss = info.loss;
    char note[64];
    std::snprintf(note, sizeof note, "epoch %lld, loss %.3f", static_cast<long long>(info.epoch + 1),
                  info.loss);
    progress.update(trainer.next_step(), note);
    const bool stop = interrupted();
    if (!flags.checkpoint.empty() && (stop || trainer.done() || trainer.next_step() % every == 0)) {
      trainer.save(flags.checkpoint);
    }
    if (stop) throw Interrupted();
  }
  return loss;
}

void run(const Flags& flags) {
  apply(flags);
  check(flags);
  train::ModelSpec spec;
  spec.name = flags.model;
  const io::ImageDataset data = train::load_images(flags.data, io::Split::train, spec);
  const io::ImageDataset test = train::load_images(flags.data, io::Split::test, spec);
  torch::manual_seed(flags.options.seed);
  const auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
  train::Trainer trainer(model, data, flags.options);
  if (flags.resume && std::filesystem::exists(flags.checkpoint)) trainer.resume(flags.checkpoint);
  const int64_t first = trainer.next_step();

  const auto begin = std::chrono::steady_clock::now();
  const double loss = run_steps(flags, trainer);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  model->eval();
  report::Progress progress("evaluate", test.size(), {.unit = "image"});
  const train::Accuracy accuracy =
      train::evaluate([&](const at::Tensor& images) { return model->forward(images); }, test, 250,
                      [&](int64_t done) { progress.update(done); });
  progress.finish();
  if (!flags.out.empty()) train::save_model_file(flags.out, *model, spec);

  const int64_t steps = trainer.total_steps() - first;
  const double epoch_seconds =
      steps > 0 ? seconds / static_cast<double>(steps) * static_cast<double>(trainer.steps_per_epoch()) : 0;
  if (flags.json) {
    return print_json({{"model", spec.name},
                       {"precision", flags.options.precision},
                       {"steps", trainer.total_steps()},
                       {"first_step", first},
                       {"last_loss", loss},
                       {"accuracy_percent", accuracy.percent()},
                       {"seconds", seconds},
                       {"seconds_per_epoch", epoch_seconds},
                       {"out", flags.out}});
  }
  std::cout << spec.name << ' ' << flags.options.precision << ": " << accuracy.percent() << " % of "
            << accuracy.total << " test images, " << epoch_seconds << " s per epoch\n";
  if (!flags.out.empty()) std::cout << "wrote " << flags.out << '\n';
}

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  train::TrainOptions& options = flags->options;
  CLI::App* command =
      add_command(app, "train", "Train a reference network in fp32, bf16 or fp16",
                  "  ulp train --precision bf16 --out model.safetensors\n"
                  "  ulp train --epochs 30 --checkpoint run.ckpt --resume --out model.safetensors\n",
                  *flags);
  command->add_option("--model", flags->model, "Reference network")
      ->check(CLI::IsMember(models::model_names()))
      ->capture_default_str();
  add_data_option(*command, flags->data);
  command
      ->add_option("--precision", options.precision, "fp32, bf16 (autocast) or fp16 (autocast, loss scaling)")
      ->check(CLI::IsMember(precision_names()))
      ->capture_default_str();
  command->add_option("--epochs", options.epochs, "Passes over the training images")->capture_default_str();
  command->add_option("--batch", options.batch, "Images in a step")->capture_default_str();
  command->add_option("--lr", options.learning_rate, "Peak of the one-cycle learning rate")
      ->capture_default_str();
  command->add_option("--momentum", options.momentum, "Nesterov momentum")->capture_default_str();
  command->add_option("--weight-decay", options.weight_decay, "L2 penalty")->capture_default_str();
  command->add_option("--warmup", options.warmup, "Share of the steps in which the rate rises")
      ->capture_default_str();
  command->add_option("--max-steps", options.max_steps, "End after this many steps (0: all epochs)")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of weights, order and augmentation")
      ->capture_default_str();
  command->add_flag("--augment,!--no-augment", options.augment, "Random horizontal flips (default: on)");
  command->add_option("--init-scale", options.init_scale, "fp16: first loss scale")->capture_default_str();
  command
      ->add_option("--growth-interval", options.growth_interval, "fp16: clean steps before the scale doubles")
      ->capture_default_str();
  command->add_option("-o,--out", flags->out, "Model file to write at the end");
  command->add_option("--checkpoint", flags->checkpoint, "File that holds everything needed to continue");
  command
      ->add_option("--checkpoint-every", flags->checkpoint_every,
                   "Steps between checkpoints (0: once an epoch)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--resume", flags->resume, "Continue from --checkpoint if the file exists");
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
