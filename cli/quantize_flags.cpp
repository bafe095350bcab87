#include "cli/quantize_flags.h"

#include <limits>
#include <map>
#include <vector>

#include "ulp/app/quantize_mode.h"
#include "ulp/base/error.h"

namespace ulp::cli {

namespace {

std::string mode_help() {
  std::string help = "How to quantize:";
  for (const app::QuantizeMode& mode : app::quantize_modes())
    help.append("\n").append(mode.name).append(": ").append(mode.summary);
  return help;
}

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const app::QuantizeMode& mode : app::quantize_modes()) names.emplace_back(mode.name);
  return names;
}

std::string recipe_help() {
  std::string help = "A recipe as JSON, or one of";
  for (const std::string& name : quant::recipe_profiles()) help += " " + name;
  return help + " (default: the mode's)";
}

const std::map<std::string, quant::LearnedParameters> kLearned = {
    {"none", quant::LearnedParameters::none},
    {"scale", quant::LearnedParameters::scale},
    {"scale_and_zero_point", quant::LearnedParameters::scale_and_zero_point}};

void add_qat_options(CLI::App& command, app::QatTraining& qat) {
  using quant::BatchNormFolding;
  CLI::Option_group* group = command.add_option_group("qat", "Training of --mode qat");
  train::TrainOptions& options = qat.train;
  group->add_option("--epochs", options.epochs, "Passes over the training data")->capture_default_str();
  group->add_option("--max-steps", options.max_steps, "End after this many steps (0: all epochs)")
      ->capture_default_str();
  group->add_option("--batch", options.batch, "Images a step")->capture_default_str();
  group->add_option("--lr", options.learning_rate, "Peak of the learning rate")->default_str("0.01");
  group->add_option("--seed", options.seed, "Seed of order and augmentation")->capture_default_str();
  group->add_option("--precision", options.precision, "Arithmetic besides the rounding")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  group
      ->add_option("--freeze-batch-norm", qat.freeze_batch_norm_after,
                   "Share of the steps after which batch norms keep their statistics (1: never)")
      ->capture_default_str();
  group
      ->add_option("--freeze-observers", qat.freeze_observers_after,
                   "Share of the steps after which ranges stay (1: never)")
      ->capture_default_str();
  group
      ->add_option_function<std::string>(
          "--learned", [&qat](const std::string& name) { qat.options.learned = kLearned.at(name); },
          "What is learned besides the model")
      ->check(CLI::IsMember(kLearned))
      ->default_str("none");
  group
      ->add_option_function<std::string>(
          "--folding",
          [&qat](const std::string& name) {
            qat.options.folding = name == "exact" ? BatchNormFolding::exact : BatchNormFolding::fast;
          },
          "Batch norms while training: exact takes two passes, fast one")
      ->check(CLI::IsMember({"fast", "exact"}))
      ->default_str("fast");
}

}  // namespace

void QuantizeFlags::check() const {
  if (model.empty()) throw CLI::RequiredError("model");
  if (out.empty() && !sensitivity) throw CLI::RequiredError("--out");
  if (out.empty() && compare)
    throw CLI::ValidationError("--compare needs --out: it compares what is written");
  if (sensitivity && test == 0) throw CLI::ValidationError("--sensitivity needs test images, got --test 0");
  if (keep_worst > 0 && test == 0) throw CLI::ValidationError("--keep-worst needs test images, got --test 0");
  if (compare && test == 0) throw CLI::ValidationError("--compare needs test images, got --test 0");
  if (!app::find_quantize_mode(mode).needs_data && (sensitivity || keep_worst > 0))
    throw CLI::ValidationError("--sensitivity and --keep-worst are for modes with data, got --mode " + mode);
  for (const std::string& file : {out, save_recipe}) {
    if (!file.empty()) check_writable(file);
  }
  if (!report.empty()) make_folder(report);
  if (mode == "qat") qat.validate();
}

void add_quantize_flags(CLI::App& command, QuantizeFlags& flags) {
  command.add_option("model", flags.model, "A file of `ulp train`, or a TorchScript file");
  command.add_option("-o,--out", flags.out, "Engine file to write");
  command.add_option("--mode", flags.mode, mode_help())
      ->check(CLI::IsMember(mode_names()))
      ->capture_default_str();
  command.add_option("--recipe", flags.recipe, recipe_help());
  add_any_data_option(command, flags.data);
  command.add_option("--samples", flags.samples, "Training images to calibrate with")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--test", flags.test,
                  "Test images to compare accuracies on (0: none; of a text all is taken)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command.add_flag("--compare", flags.compare, "Show each activation's error against the float model");
  command.add_flag("--sensitivity", flags.sensitivity,
                   "Show what each layer costs when it alone is quantized (first 256 test images)");
  command.add_option("--keep-worst", flags.keep_worst, "Leave so many of the most sensitive layers in float")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command.add_option("--save-recipe", flags.save_recipe, "Write the recipe that was used as JSON");
  command.add_option("--report", flags.report, "Folder for report.json and report.html");
  command.add_flag("-v,--verbose", flags.verbose, "Say what was quantized, and what not and why");
  add_qat_options(command, flags.qat);
  flags.shape.add_to(command);
  flags.explain.add_to(command);
}

}  // namespace ulp::cli
