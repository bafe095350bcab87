#include "cli/train_flags.h"

#include <vector>

#include "cli/model_flags.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::cli {

namespace {

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
  command
      .add_option("--moments", options.moments,
                  "With --masters or --clip: keep the optimizer's momentum and moments in fp32 or in bf16 "
                  "(half the memory, "
                  "rounded at random)")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
}

void add_loop_options(CLI::App& command, TrainFlags& flags) {
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

void add_watch_options(CLI::App& command, TrainFlags& flags) {
  command.add_flag(
      "--watch", flags.watch,
      "Show what a number format does to gradients and ops while training: shares lost, headroom, "
      "causes of skipped steps");
  const auto watch = [&flags](const std::string&) { flags.watch = true; };
  command
      .add_option("--watch-format", flags.watching.format,
                  "The format that values are held against (implies --watch)")
      ->each(watch)
      ->capture_default_str();
  command
      .add_option("--watch-every", flags.watching.every,
                  "Steps from one that is looked at to the next (implies --watch)")
      ->each(watch)
      ->capture_default_str();
  command.add_option("--report", flags.report, "Write what the watch saw as an HTML page (implies --watch)");
}

void add_files(CLI::App& command, TrainFlags& flags) {
  command.add_option("--init", flags.init, "Model file whose network and weights the run starts from");
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

void TrainFlags::check() const {
  if (checkpoint.empty() && (resume || checkpoint_every > 0)) {
    throw CLI::ValidationError("--resume and --checkpoint-every need --checkpoint FILE");
  }
  if (const auto conflict = options.conflict()) throw CLI::ValidationError(*conflict);
  options.validate();
  if (watch) watching.validate();
  for (const std::string& file : {out, checkpoint, report}) {
    if (!file.empty()) check_writable(file);
  }
}

void add_train_flags(CLI::App& command, TrainFlags& flags) {
  command
      .add_option(
          "--model", flags.model,
          "Reference network (default: resnet14; mlp for rows, gpt2 for text, bert for labelled text)")
      ->check(CLI::IsMember(all_model_names()));
  add_any_data_option(command, flags.data);
  command.add_option("--length", flags.length, "Text: bytes that the network reads at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_precision_options(command, flags.options);
  add_loop_options(command, flags);
  add_watch_options(command, flags);
  add_files(command, flags);
}

}  // namespace ulp::cli
