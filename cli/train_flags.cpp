#include "cli/train_flags.h"

#include <vector>

#include "cli/field_flags.h"
#include "cli/fp8_recipe_file.h"
#include "cli/help_groups.h"
#include "cli/memory_plan_flags.h"
#include "cli/model_flags.h"
#include "ulp/base/byte_size.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::cli {

namespace {

std::vector<std::string> all_model_names() {
  std::vector<std::string> names = models::model_names();
  for (const std::string& name : models::text_model_names()) names.push_back(name);
  return names;
}

/// The described fields. The data choose the optimizer where none is given.
void add_training_options(CLI::App& command, TrainFlags& flags) {
  add_field_flags(command, flags.options);
  CLI::Option* optimizer = command.get_option("--optimizer");
  optimizer->each([&flags](const std::string&) { flags.optimizer_given = true; });
  optimizer->default_str("")->description(optimizer->get_description() + " (default: sgd; text: adamw)");
  command.get_option("--masters")->each([&flags](const std::string&) { flags.masters_given = true; });
  command.get_option("--moments")->each([&flags](const std::string&) { flags.moments_given = true; });
  command.add_option("--memory-budget", flags.memory_budget,
                     "Memory that the run may take, as 2GiB: masters, moments and batches are chosen to fit");
}

void add_watch_options(CLI::App& command, TrainFlags& flags) {
  command.add_flag(
      "--watch", flags.watch,
      "Show what a number format does to gradients and ops while training: shares lost, headroom, "
      "causes of skipped steps");
  add_field_flags(command, flags.watching);
  for (const char* name : {"--watch-format", "--watch-every"}) {
    CLI::Option* option = command.get_option(name);
    option->each([&flags](const std::string&) { flags.watch = true; });
    option->description(option->get_description() + " (implies --watch)");
  }
  command.add_option("--report", flags.report, "Write what the watch saw as an HTML page (implies --watch)");
}

void add_files(CLI::App& command, TrainFlags& flags) {
  command.add_option("--init", flags.init,
                     "Model file, or published weights, whose network and weights the run starts from");
  command.add_option("-o,--out", flags.out, "Model file to write at the end; of adapters a folder");
  command.add_option(
      "--tokenizer", flags.tokenizer,
      "tokenizer.json whose tokens a network over text reads (`ulp tokenizer` makes one; default: bytes); "
      "the model file keeps it");
  command.add_option(
      "--prune", flags.prune,
      "Prune weights while training, by this recipe as JSON (`ulp prune --save-recipe` writes one)");
  command.add_flag("--keep-zeros", flags.keep_zeros,
                   "Weights of --init that are zero stay zero, as `ulp prune` left them");
  add_fp8_recipe_flag(command, flags.fp8_recipe);
  flags.lora.add_to(command);
  flags.checkpointing.add_to(command);
}

/// The order of the help: what most runs say first.
void group_train_help(CLI::App& command) {
  group_help(command, {{"Main flags",
                        {"--data", "--model", "--precision", "--epochs", "--batch", "--optimizer", "--lr",
                         "--out", "--checkpoint", "--resume"}},
                       {"Data", {"--length", "--tokenizer", "--augment", "--seed"}},
                       {"Model", {"--init", "--prune", "--keep-zeros"}},
                       {"Adapters",
                        {"--lora", "--lora-alpha", "--lora-targets", "--lora-dropout", "--lora-rslora",
                         "--lora-base", "--lora-group", "--lora-double-quant", "--lora-skip", "--adapter"}},
                       {"Optimization",
                        {"--max-steps", "--accumulate", "--clip", "--schedule", "--warmup", "--momentum",
                         "--weight-decay", "--compile"}},
                       {"Precision",
                        {"--masters", "--moments", "--fp32-moments", "--scaler", "--init-scale",
                         "--growth-interval", "--max-skips", "--fp8-recipe"}},
                       {"Memory",
                        {"--memory-budget", "--checkpoint-activations", "--activations", "--activation-masks",
                         "--offload-activations", "--offload-optimizer", "--offload-folder"}},
                       {"Processes and threads",
                        {"--threads", "--parallel", "--zero", "--reduce", "--bucket-mib", "--micro-batches",
                         "--pipeline-schedule", "--stage-memory", "--checkpoint-shares"}},
                       {"Output",
                        {"--checkpoint-every", "--watch", "--watch-format", "--watch-every", "--report",
                         "--json", "--help"}}});
}

}  // namespace

/// What does not go together with processes that have parts of a model.
void TrainFlags::check_parts() const {
  if (sharing.stage_memory && sharing.parallel != train::Parallel::pipeline)
    throw CLI::ValidationError("--stage-memory needs --parallel pipeline");
  if (sharing.parallel == train::Parallel::data) return;
  const std::string given = "--parallel " + std::string(enum_name(sharing.parallel));
  const auto refuse = [&](bool wrong, const char* flags) {
    if (wrong) throw CLI::ValidationError(given + " and " + flags + " exclude each other");
  };
  refuse(parallel.zero != distributed::ZeroStage::off, "--zero");
  refuse(!prune.empty() || keep_zeros, "--prune or --keep-zeros");
  refuse(watch, "--watch");
  refuse(plan.plans_activations(), "plans of activations");
  const bool splits = sharing.parallel == train::Parallel::tensor;
  refuse(!splits && (options.precision->fp8 || options.precision->int8), "precisions of 8 bits");
  // Parts of different sizes would draw different numbers of random ones, and what all have would be rounded differently.
  refuse(splits && (options.precision.name() == std::string("nvfp4") || !fp8_recipe.empty()),
         "nvfp4 or --fp8-recipe");
  // Blocks of a part of a matrix are not those of the whole.
  refuse(splits && !checkpointing.path.empty() &&
             (options.moments == amp::MomentFormat::int8 || options.moments == amp::MomentFormat::int4),
         "--checkpoint with --moments int8 or int4");
  // The scales of layers of which each process has a part are in no whole model.
  refuse(options.precision->fp8 && !checkpointing.path.empty(), "--checkpoint with precisions of fp8");
  // Copies of one weight in several processes would be rounded in different ways.
  refuse(options.master_weights() == amp::MasterWeights::stochastic, "--masters stochastic");
  refuse(sharing.parallel == train::Parallel::pipeline && options.batch < sharing.pipeline.micro_batches,
         "a --batch with fewer samples than --micro-batches");
}

/// What does not go with what is said of activations and of the optimizer's state.
void TrainFlags::check_plan() const {
  check_memory_plan(plan, options);
  if (plan.plans_activations() && parallel.zero == distributed::ZeroStage::parameters)
    throw CLI::ValidationError("--zero 3 and plans of activations exclude each other");
  if (plan.plans_activations() && watch)
    throw CLI::ValidationError(
        "--watch and plans of activations exclude each other: it would see calls twice");
  if (!prune.empty() && plan.checkpoint_activations.kind == app::CheckpointRule::Kind::bytes)
    throw CLI::ValidationError(
        "--prune and --checkpoint-activations bytes:SIZE exclude each other; sqrt and every:K go with it");
  if (plan.offload_optimizer != memory::StorageLocation::memory &&
      parallel.zero != distributed::ZeroStage::off)
    throw CLI::ValidationError("--offload-optimizer and --zero 1, 2 and 3 exclude each other");
  if (budget && plan.offload_activations != memory::StorageLocation::memory)
    throw CLI::ValidationError(
        "--memory-budget and --offload-activations file exclude each other: how much is on its way "
        "to the file depends on its speed");
}

/// What does not go with a compiled step, beside what the options themselves say.
void TrainFlags::check_compile() const {
  if (!options.compile) return;
  const auto refuse = [](bool wrong, const char* other) {
    if (wrong) throw CLI::ValidationError(std::string("--compile and ") + other + " exclude each other");
  };
  if (watch) throw CLI::ValidationError("--compile and --watch exclude each other: it would see no op");
  refuse(sharing.parallel != train::Parallel::data, "--parallel tensor or pipeline");
  refuse(parallel.zero != distributed::ZeroStage::off, "--zero");
  refuse(plan.plans_activations(), "plans of activations");
  refuse(budget.has_value(), "--memory-budget");
}

/// What does not go with adapters.
void TrainFlags::check_adapters() const {
  lora.check(!init.empty(), options.precision, options.masters.has_value());
  if (!lora.trains()) return;
  const auto refuse = [](bool wrong, const char* other) {
    if (wrong)
      throw CLI::ValidationError(std::string("--lora or --adapter and ") + other + " exclude each other");
  };
  refuse(!prune.empty() || keep_zeros, "--prune or --keep-zeros");
  refuse(budget.has_value(), "--memory-budget");
  refuse(sharing.parallel != train::Parallel::data, "--parallel tensor or pipeline");
  refuse(parallel.zero == distributed::ZeroStage::parameters, "--zero 3");
  check_adapter_folder(out);
}

void TrainFlags::check() {
  if (!tokenizer.empty() && !init.empty())
    throw CLI::ValidationError("--tokenizer and --init exclude each other: a model file has its own");
  checkpointing.check();
  if (!memory_budget.empty()) {
    const auto read = ByteSize::from_text(memory_budget);
    if (!read) {
      throw CLI::ValidationError("--memory-budget",
                                 std::string("expected ") + ByteSize::kExpected + ", got " + memory_budget);
    }
    budget = read->bytes;
  }
  if (const auto conflict = options.conflict()) {
    throw CLI::ValidationError(in_flags(*conflict, options));
  }
  as_usage([&] {
    options.validate();
    parallel.validate();
    sharing.validate();
    if (watch) watching.validate();
  });
  const bool shares = parallel.zero != distributed::ZeroStage::off;
  if (shares && (!prune.empty() || keep_zeros))
    throw CLI::ValidationError("--zero and --prune or --keep-zeros exclude each other");
  if (shares && (options.moments == amp::MomentFormat::int8 || options.moments == amp::MomentFormat::int4))
    throw CLI::ValidationError("--zero 1, 2 and 3 need --moments fp32 or bf16");
  if (watch && parallel.zero >= distributed::ZeroStage::gradients)
    throw CLI::ValidationError("--watch needs --zero 0 or 1: beyond, no process has all gradients");
  if (checkpoint_shares && (checkpointing.path.empty() || !shares))
    throw CLI::ValidationError("--checkpoint-shares needs --checkpoint FILE and --zero 1, 2 or 3");
  check_parts();
  check_plan();
  check_compile();
  check_fp8_recipe_flag(fp8_recipe, options.precision);
  if (keep_zeros && init.empty()) throw CLI::ValidationError("--keep-zeros needs --init");
  if (keep_zeros && watch) throw CLI::ValidationError("--keep-zeros and --watch exclude each other");
  if (!prune.empty() && budget) throw CLI::ValidationError("--prune and --memory-budget exclude each other");
  if (watch && budget) throw CLI::ValidationError("--watch and --memory-budget exclude each other");
  if (!prune.empty() && watch) throw CLI::ValidationError("--prune and --watch exclude each other");
  check_adapters();
  if (!lora.trains()) check_ending(out, {".safetensors"});
  for (const std::string& file : {lora.trains() ? std::string() : out, checkpointing.path, report}) {
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
      ->check(positive())
      ->capture_default_str();
  add_training_options(command, flags);
  add_field_flags(command, flags.parallel);
  add_field_flags(command, flags.sharing);
  add_field_flags(command, flags.plan);
  command.add_flag(
      "--checkpoint-shares", flags.checkpoint_shares,
      "With --zero: each process writes its share of the optimizer's state to a file of its own beside "
      "--checkpoint");
  add_watch_options(command, flags);
  add_files(command, flags);
  group_train_help(command);
}

}  // namespace ulp::cli
