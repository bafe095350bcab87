#include "cli/quantize_flags.h"

#include <cmath>
#include <vector>

#include "cli/lora_flags.h"
#include "ulp/app/quantize/quantize_mode.h"
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
  std::string help = "A file of the mode's recipe as JSON, or one of";
  for (const std::string& name : quant::recipe_profiles()) help += " " + name;
  return help + " (default: the mode's)";
}

/// The flags of every mode's recipe, from its own list of fields.
void add_recipe_options(CLI::App& command, RecipeFlags& flags) {
  flags.keep_whole("loss");
  for (const app::QuantizeMode& mode : app::quantize_modes()) {
    app::ModeRecipe recipe = mode.default_recipe();
    flags.add(command, mode.name, std::string("Recipe of --mode ") + mode.name,
              [&](FieldVisitor& visit) { recipe.visit_fields(visit); }, {"binary", "tensors", "training"});
  }
}

/// Names of the candidates that a search takes by itself.
std::string candidates_help() {
  std::string names;
  for (const std::string& name : quant::MixedPrecisionSearch::default_candidates())
    names += (names.empty() ? "" : ",") + name;
  return names;
}

}  // namespace

void BitSearchFlags::add_to(CLI::App& command) {
  const char* group = "Search of --mode weight-only";
  command
      .add_option("--max-bytes", max_bytes,
                  "Search for bits, groups and method of each weight: the least loss within this size of all "
                  "weights, as 400KiB")
      ->group(group);
  command
      .add_option("--max-loss", max_loss,
                  "The same: the smallest weights within this much more loss than the float model's, on "
                  "--samples (nats; with "
                  "--test 0 the relative error of the results)")
      ->check(CLI::Range(0.0, 1e9))
      ->group(group);
  command
      .add_option("--candidates", candidates,
                  "What each weight may be stored as: bits, group (-1: the row), affine and method, as "
                  "8,4/32,3/64/affine/gptq")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str(candidates_help())
      ->group(group);
  command.add_option("--finalists", finalists, "So many mixes are made and measured")
      ->check(positive())
      ->default_str(std::to_string(quant::MixedPrecisionSearch().finalists))
      ->group(group);
}

void BitSearchFlags::put(const app::QuantizeMode& mode, nlohmann::json& fields) const {
  nlohmann::json search = nlohmann::json::object();
  if (!max_bytes.empty()) {
    if (!ByteSize::from_text(max_bytes))
      throw CLI::ValidationError("--max-bytes",
                                 std::string("expected ") + ByteSize::kExpected + ", got " + max_bytes);
    search["max_bytes"] = max_bytes;
  }
  if (max_loss) search["max_loss"] = *max_loss;
  if (!candidates.empty()) search["candidates"] = candidates;
  if (finalists) search["finalists"] = *finalists;
  if (search.empty()) return;
  if (!std::holds_alternative<quant::WeightOnlyRecipe>(mode.default_recipe().recipe))
    throw CLI::ValidationError(
        std::string(
            "--max-bytes, --max-loss, --candidates and --finalists are for --mode weight-only, got --mode ") +
        mode.name);
  fields["search"] = search;
}

void QuantizeFlags::check() const {
  if (model.empty() && explain.bits_given()) throw CLI::ValidationError("--bits needs --explain, or a model");
  if (model.empty()) throw CLI::RequiredError("model");
  if (out.empty() && !sensitivity) throw CLI::RequiredError("--out");
  if (out.empty() && compare)
    throw CLI::ValidationError("--compare needs --out: it compares what is written");
  if (sensitivity && test == 0) throw CLI::ValidationError("--sensitivity needs test data, got --test 0");
  if (keep_worst > 0 && test == 0) throw CLI::ValidationError("--keep-worst needs test data, got --test 0");
  if (max_drop && std::isnan(*max_drop))
    throw CLI::ValidationError("--max-drop", "expected a number, got nan");
  if (max_drop && (test == 0 || out.empty()))
    throw CLI::ValidationError("--max-drop needs test data and --out, got --test 0 or no --out");
  checkpointing.check();
  if (compare && test == 0) throw CLI::ValidationError("--compare needs test data, got --test 0");
  check_other_file(model, out);
  check_ending(out, {".ulp", ".onnx", ".tflite"});
  if (integer_io && ending_of(out) != ".tflite")
    throw CLI::ValidationError("--integer-io is for TensorFlow Lite files, whose name ends in .tflite");
  for (const std::string& file : {out, save_recipe, checkpointing.path}) {
    if (!file.empty()) check_writable(file);
  }
  if (!report.empty()) make_folder(report);
}

void QuantizeFlags::check(const app::QuantizeMode& chosen) const {
  if (!chosen.needs_data && (sensitivity || keep_worst > 0)) {
    throw CLI::ValidationError(
        std::string("--sensitivity and --keep-worst are for modes with data, got --mode ") + chosen.name);
  }
  if (max_drop && (chosen.trains || !chosen.needs_data)) {
    throw CLI::ValidationError(std::string("--max-drop is for modes that calibrate, got --mode ") +
                               chosen.name);
  }
  if (!chosen.trains && keep_zeros) {
    throw CLI::ValidationError(std::string("--keep-zeros is for modes that train, got --mode ") +
                               chosen.name);
  }
  if (!chosen.trains && checkpointing.given()) {
    throw CLI::ValidationError(std::string("--checkpoint is for modes that train, got --mode ") +
                               chosen.name);
  }
}

void add_quantize_flags(CLI::App& command, QuantizeFlags& flags) {
  command.add_option("model", flags.model,
                     "A file of `ulp train`, a TorchScript, ONNX or .pt2 file, or published weights");
  command.add_option(
      "-o,--out", flags.out,
      "Engine file to write; an ONNX file where its name ends in .onnx, a TensorFlow Lite file (of batch "
      "1; recipe tflite_int8 unless --recipe says another) where it ends in .tflite");
  command.add_flag("--integer-io", flags.integer_io,
                   "TensorFlow Lite: inputs that are quantized first come as codes, results leave as codes");
  command.add_option("--mode", flags.mode, mode_help())
      ->check(CLI::IsMember(mode_names()))
      ->default_str(std::string("the recipe's, else ") + app::quantize_modes().front().name);
  command.add_option("--recipe", flags.recipe, recipe_help());
  add_any_data_option(command, flags.data);
  command.add_option(
      "--calibration", flags.calibration,
      "Data to calibrate or train with, as --data takes it (default: the training part of --data)");
  command.add_option("--samples", flags.samples, "Training samples to calibrate with")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option(
          "--test", flags.test,
          "Test samples to compare accuracies on (0: none; of a text all is taken). Without --data, modes "
          "that need no data leave the comparison out where fashion-mnist does not fit the model")
      ->check(not_negative())
      ->capture_default_str();
  command.add_flag("--compare", flags.compare, "Show each activation's error against the float model");
  command.add_option("--continued", flags.continued,
                     "Free dimension along which runs continue each other, to write texts: time");
  command.add_flag("--sensitivity", flags.sensitivity,
                   "Show what each layer costs when it alone is quantized (first 256 test samples)");
  command.add_option("--keep-worst", flags.keep_worst, "Leave so many of the most sensitive layers in float")
      ->check(not_negative())
      ->capture_default_str();
  command
      .add_option(
          "--max-drop", flags.max_drop,
          "Leave the most sensitive layers in float until at most so many points of accuracy are lost")
      ->check(CLI::Range(0.0, 100.0));
  command.add_flag("--keep-zeros", flags.keep_zeros,
                   "qat: weights that are zero stay zero, as `ulp prune` left them");
  flags.checkpointing.add_to(command);
  command.add_option("--save-recipe", flags.save_recipe, "Write the recipe that was used as JSON");
  command.add_option("--report", flags.report, "Folder for report.json and report.html");
  command.add_flag("-v,--verbose", flags.verbose, "Say what was quantized, and what not and why");
  add_recipe_options(command, flags.fields);
  add_adapter_flag(command, flags.adapter);
  flags.shape.add_to(command);
  flags.search.add_to(command);
  flags.explain.add_to(command);
}

}  // namespace ulp::cli
