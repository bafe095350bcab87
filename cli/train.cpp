// ulp train: trains a reference network on images, arrays or text, with checkpoints that continue bit for
// bit.
#include <torch/torch.h>

#include <algorithm>
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
#include "ulp/models/text_registry.h"
#include "ulp/train/data.h"
#include "ulp/train/trainer.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string model, data = "fashion-mnist";
  std::string optimizer;
  std::string out, checkpoint;
  int64_t checkpoint_every = 0;
  int64_t length = 128;
  bool resume = false;
  train::TrainOptions options;
};

/// What a run did.
struct Outcome {
  double last_loss = 0, seconds = 0;
  int64_t first_step = 0, skipped_steps = 0;
};

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const amp::Precision& precision : amp::precisions()) names.emplace_back(precision.name);
  return names;
}

std::string precision_help() {
  std::string help = "How to compute:";
  for (const amp::Precision& precision : amp::precisions())
    help.append("\n").append(precision.name).append(": ").append(precision.summary);
  return help;
}

std::vector<std::string> all_model_names() {
  std::vector<std::string> names = models::model_names();
  for (const std::string& name : models::text_model_names()) names.push_back(name);
  return names;
}

/// Finds what is wrong before hours of work; combinations that make no sense are wrong use.
void check(const Flags& flags) {
  if (flags.checkpoint.empty() && (flags.resume || flags.checkpoint_every > 0)) {
    throw CLI::ValidationError("--resume and --checkpoint-every need --checkpoint FILE");
  }
  if (const auto conflict = flags.options.conflict()) throw CLI::ValidationError(*conflict);
  flags.options.validate();
  if (!flags.out.empty()) check_writable(flags.out);
  if (!flags.checkpoint.empty()) check_writable(flags.checkpoint);
}

/// The network for the data where none is named.
std::string default_model(const train::ModelSpec& spec) {
  if (spec.kind == train::NetworkKind::language) return "gpt2";
  if (spec.kind == train::NetworkKind::text) return "bert";
  return spec.image_size == 1 ? "mlp" : "resnet14";
}

bool can_take(const std::string& model, const train::ModelSpec& spec) {
  const std::vector<std::string> text = models::text_model_names();
  const bool over_text = std::find(text.begin(), text.end(), model) != text.end();
  if (spec.kind == train::NetworkKind::image) return !over_text && (spec.image_size > 1 || model == "mlp");
  if (!over_text) return false;
  const auto tasks = models::text_model_tasks(model);
  const auto task = spec.kind == train::NetworkKind::text ? models::TextTask::classification
                                                          : models::TextTask::language_modelling;
  return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

std::string choose_model(const Flags& flags, const train::TaskData& data) {
  if (flags.model.empty()) return default_model(data.spec);
  if (can_take(flags.model, data.spec)) return flags.model;
  throw CLI::ValidationError("--model " + flags.model + " does not take the " + data.unit + "s of --data " +
                             flags.data + "; " + default_model(data.spec) + " does");
}

/// Trains to the end; on Ctrl-C saves the checkpoint, if one was asked for, and throws Interrupted.
void run_steps(const Flags& flags, train::Trainer& trainer, Outcome& outcome) {
  const int64_t every = flags.checkpoint_every > 0 ? flags.checkpoint_every : trainer.steps_per_epoch();
  report::Progress progress("train " + flags.options.precision, trainer.total_steps(), {.unit = "step"});
  while (!trainer.done()) {
    const train::StepInfo info = trainer.step();
    outcome.last_loss = info.loss;
    outcome.skipped_steps += info.result == amp::StepResult::skipped_nonfinite;
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
}

Outcome train_network(const Flags& flags, train::Trainer& trainer) {
  if (flags.resume && std::filesystem::exists(flags.checkpoint)) trainer.resume(flags.checkpoint);
  Outcome outcome{.first_step = trainer.next_step()};
  const auto begin = std::chrono::steady_clock::now();
  run_steps(flags, trainer, outcome);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

train::Accuracy test(const train::Network& network, const train::TaskData& data) {
  train::to_float(*network.module);
  network.module->eval();
  const auto batches = data.stream(io::Split::test, {.batch = 250});
  report::Progress progress("evaluate", batches->samples(), {.unit = data.unit});
  const train::Accuracy accuracy =
      train::evaluate(network.forward, *batches, [&](int64_t done) { progress.update(done); });
  progress.finish();
  return accuracy;
}

void show(const Flags& flags, const train::ModelSpec& spec, const char* unit, const train::Trainer& trainer,
          const Outcome& outcome, const train::Accuracy& accuracy) {
  const int64_t steps = trainer.total_steps() - outcome.first_step;
  const double epoch_seconds = steps > 0 ? outcome.seconds / static_cast<double>(steps) *
                                               static_cast<double>(trainer.steps_per_epoch())
                                         : 0;
  if (flags.json) {
    return print_json({{"model", spec.name},
                       {"precision", flags.options.precision},
                       {"steps", trainer.total_steps()},
                       {"first_step", outcome.first_step},
                       {"skipped_steps", outcome.skipped_steps},
                       {"last_loss", outcome.last_loss},
                       {"accuracy_percent", accuracy.percent()},
                       {"test_loss", accuracy.loss},
                       {"seconds", outcome.seconds},
                       {"seconds_per_epoch", epoch_seconds},
                       {"out", flags.out}});
  }
  std::cout << spec.name << ' ' << flags.options.precision << ": " << describe(accuracy, spec.kind, unit)
            << ", " << epoch_seconds << " s per epoch\n";
  if (outcome.skipped_steps > 0) std::cout << outcome.skipped_steps << " steps skipped by loss scaling\n";
  if (!flags.out.empty()) std::cout << "wrote " << flags.out << '\n';
}

void run(Flags flags) {
  apply(flags);
  if (!flags.optimizer.empty()) flags.options.optimizer = flags.optimizer;
  check(flags);
  const train::TaskData data = train::load_data(flags.data, flags.length);
  train::ModelSpec spec = data.spec;
  if (flags.optimizer.empty() && spec.kind != train::NetworkKind::image) flags.options.optimizer = "adamw";
  spec.name = choose_model(flags, data);
  torch::manual_seed(flags.options.seed);
  const train::Network network = train::make_network(spec);
  train::Trainer trainer(
      {.model = network.module,
       .forward = network.forward,
       .batches = data.stream(
           io::Split::train,
           train::StreamOptions::training(flags.options.batch, flags.options.seed, flags.options.augment)),
       .description = spec.to_json()},
      flags.options);
  const Outcome outcome = train_network(flags, trainer);
  const train::Accuracy accuracy = test(network, data);
  if (!flags.out.empty()) train::save_model_file(flags.out, *network.module, spec);
  show(flags, spec, data.unit, trainer, outcome, accuracy);
}

void add_precision_options(CLI::App& command, train::TrainOptions& options) {
  command.add_option("--precision", options.precision, precision_help())
      ->check(CLI::IsMember(precision_names()))
      ->capture_default_str();
  command.add_option("--scaler", options.scaler,
                     "Loss scaling: pytorch, keras, keras2, apex, deepspeed, static:S or none (default: "
                     "pytorch where the precision needs one)");
  command.add_option("--init-scale", options.init_scale, "First loss scale (default: the scaler's)");
  command.add_option("--growth-interval", options.growth_interval,
                     "Clean steps before the scale grows (default: the scaler's)");
  command
      .add_option(
          "--masters", options.masters,
          "Store parameters in bf16 or fp16 and keep their fp32 values: fp32 (a copy), split (the low "
          "halves), stochastic (rounding at random), kahan (what rounding lost)")
      ->check(CLI::IsMember({"fp32", "split", "stochastic", "kahan"}));
}

void add_loop_options(CLI::App& command, Flags& flags) {
  train::TrainOptions& options = flags.options;
  command
      .add_option("--optimizer", flags.optimizer, "sgd (Nesterov), adam or adamw (default: sgd; text: adamw)")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  command.add_option("--epochs", options.epochs, "Passes over the training data")->capture_default_str();
  command.add_option("--batch", options.batch, "Samples that go through the network at once")
      ->capture_default_str();
  command.add_option("--accumulate", options.accumulate, "Batches whose mean gradient makes one step")
      ->capture_default_str();
  command.add_option("--clip", options.clip, "Largest norm of all gradients together");
  command.add_option("--lr", options.learning_rate,
                     "Peak of the learning rate (default: 0.2 for sgd, 0.001 for the others)");
  command.add_option("--momentum", options.momentum, "Nesterov momentum")->capture_default_str();
  command.add_option("--weight-decay", options.weight_decay,
                     "L2 penalty (default: 5e-4 for sgd, 0 for adam, 0.01 for adamw)");
  command
      .add_option("--schedule", options.schedule,
                  "triangle, constant, constant_with_warmup, cosine, polynomial or one_cycle")
      ->capture_default_str();
  command.add_option("--warmup", options.warmup, "Share of the steps in which the rate rises")
      ->capture_default_str();
  command.add_option("--max-steps", options.max_steps, "End after this many steps (0: all epochs)")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Seed of weights, order and augmentation")
      ->capture_default_str();
  command.add_flag("--augment,!--no-augment", options.augment,
                   "Images: random horizontal flips (default: on)");
}

void add_files(CLI::App& command, Flags& flags) {
  command.add_option("-o,--out", flags.out, "Model file to write at the end");
  command.add_option("--checkpoint", flags.checkpoint, "File that holds everything needed to continue");
  command
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  "Steps between checkpoints (0: once an epoch)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_flag("--resume", flags.resume, "Continue from --checkpoint if the file exists");
}

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      add_command(app, "train", "Train a reference network on images, arrays or text, in any precision",
                  "  ulp train --precision bf16 --out model.safetensors\n"
                  "  ulp train --epochs 30 --checkpoint run.ckpt --resume --out model.safetensors\n"
                  "  ulp train --precision O2 --scaler apex --clip 1 --accumulate 4\n"
                  "  ulp train --data book.txt --model gpt2 --precision bf16 --masters split\n",
                  *flags);
  command
      ->add_option(
          "--model", flags->model,
          "Reference network (default: resnet14; mlp for rows, gpt2 for text, bert for labelled text)")
      ->check(CLI::IsMember(all_model_names()));
  add_any_data_option(*command, flags->data);
  command->add_option("--length", flags->length, "Text: bytes that the network reads at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_precision_options(*command, flags->options);
  add_loop_options(*command, *flags);
  add_files(*command, *flags);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
