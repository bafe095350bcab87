// ulp quantize: a trained model and data -> an int8 engine file, and what that cost.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/quantize_flags.h"
#include "cli/recipe_file.h"
#include "cli/stage_bars.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/app/data/data.h"
#include "ulp/app/data/named_data.h"
#include "ulp/app/model_io/adapter.h"
#include "ulp/app/model_io/exchange_component.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/prune/pruner.h"

namespace ulp::cli {

namespace {

constexpr const char* kQuantizeWhere = "cli.quantize";
/// Samples of named inputs that go through the network at once.
constexpr int64_t kNamedBatch = 64;

/// A mode, and a recipe for it.
struct Plan {
  const app::QuantizeMode& mode;
  app::ModeRecipe recipe;
};

app::ModeRecipe mode_recipe_of(const std::string& recipe) {
  const std::vector<std::string> profiles = quant::recipe_profiles();
  if (std::find(profiles.begin(), profiles.end(), recipe) != profiles.end())
    return {.recipe = quant::Recipe::profile(recipe)};
  return read_recipe<app::ModeRecipe>(recipe);
}

/// Runs a check of the recipe; its errors name the recipe that --recipe gave.
template <typename Check>
auto in_recipe(const std::string& recipe, Check&& check) {
  try {
    return check();
  } catch (const Error& error) {
    if (recipe.empty()) throw;
    fail("cli.quantize", "in the recipe '", recipe, "': ", error.what());
  }
}

/// The name of --out says what is written.
bool is_onnx(const QuantizeFlags& flags) {
  return ending_of(flags.out) == ".onnx";
}

bool is_tflite(const QuantizeFlags& flags) {
  return ending_of(flags.out) == ".tflite";
}

/// Finds before hours of work what the file cannot hold.
void check_fits_file(const QuantizeFlags& flags, const Plan& plan) {
  const quant::Recipe* tensors = quant::tensors_of(plan.recipe.recipe);
  if (is_onnx(flags) && tensors != nullptr && tensors->backend == quant::Backend::binary)
    throw CLI::ValidationError("--out", "an ONNX file holds 8 and 4 bits, got a binary network");
  if (!is_tflite(flags)) return;
  if (tensors == nullptr || tensors->backend == quant::Backend::binary)
    throw CLI::ValidationError("--out", std::string("a TensorFlow Lite file holds static int8, got --mode ") +
                                            plan.mode.name +
                                            "; .onnx has a form of dynamic int8 and of weights alone");
}

/// --bits is a flag of --explain, and the short name of --weight-bits; of modes with tensors it is the bits of weights.
void add_bits(int64_t bits, Plan& plan, nlohmann::json& given) {
  if (quant::Recipe* tensors = quant::tensors_of(plan.recipe.recipe)) {
    tensors->weight.scheme.bits = bits;
    return;
  }
  if (!std::holds_alternative<quant::WeightOnlyRecipe>(plan.recipe.recipe))
    throw CLI::ValidationError(
        std::string("--bits is for --explain and the modes static, qat and weight-only, got --mode ") +
        plan.mode.name);
  if (given.contains("bits") && given["bits"] != bits)
    throw CLI::ValidationError("--bits and --weight-bits are one, got two numbers");
  given["bits"] = bits;
}

/// A search takes from its candidates what these flags would say.
void check_beside_search(const nlohmann::json& given) {
  for (const char* field : {"bits", "group", "affine", "method"}) {
    if (given.contains(field))
      throw CLI::ValidationError(std::string("--") + field,
                                 "a search takes it from --candidates, expected it there alone");
  }
}

/// The mode of --mode, else the recipe's, else the first; --recipe, else the mode's own; flags over both.
Plan make_plan(const QuantizeFlags& flags) {
  std::optional<app::ModeRecipe> recipe;
  if (!flags.recipe.empty()) recipe = mode_recipe_of(flags.recipe);
  const app::QuantizeMode& mode = !flags.mode.empty() ? app::find_quantize_mode(flags.mode)
                                  : recipe            ? app::mode_of(recipe->recipe)
                                                      : app::quantize_modes().front();
  // The format's own rounding and ranges, unless a recipe says otherwise.
  if (!recipe && is_tflite(flags) && quant::tensors_of(mode.default_recipe().recipe) != nullptr)
    recipe = mode_recipe_of(to_string(quant::Backend::tflite_int8));
  const auto own = [&] { return recipe ? app::recipe_for(mode, std::move(*recipe)) : mode.default_recipe(); };
  Plan plan{mode, in_recipe(flags.recipe, own)};
  nlohmann::json given = flags.fields.given(mode.name);
  if (flags.explain.bits_given()) add_bits(flags.explain.bits, plan, given);
  flags.search.put(mode, given);
  put_over(given, plan.recipe);
  if (app::searches(plan.recipe.recipe)) check_beside_search(given);
  as_usage([&] { in_recipe(flags.recipe, [&] { plan.recipe.validate(); }); });
  return plan;
}

nlohmann::json to_json(const QuantizeFlags& flags, const app::QuantizeRun& run) {
  const app::QuantizeOutcome& outcome = run.outcome;
  nlohmann::json json{{"mode", outcome.mode}};
  if (run.plan) {
    json.update({{"file", flags.out},
                 {"bytes", file_bytes(flags.out)},
                 {"weight_bytes", outcome.bytes},
                 {"float_weight_bytes", outcome.float_bytes}});
    if (!is_onnx(flags) && !is_tflite(flags)) json["steps"] = run.plan->steps.size();
  }
  if (outcome.accuracy) {
    json["accuracy_percent"] = outcome.accuracy->percent();
    json["float_accuracy_percent"] = outcome.float_accuracy->percent();
    json["loss"] = outcome.accuracy->loss;
    json["float_loss"] = outcome.float_accuracy->loss;
  }
  if (!outcome.comparison.empty())
    json["comparison"] = cli::to_json(app::comparison_table(outcome.comparison));
  if (outcome.sensitivity) json["sensitivity"] = cli::to_json(app::sensitivity_table(*outcome.sensitivity));
  if (outcome.search) {
    json["search"] = {{"measured", cli::to_json(app::measured_table(*outcome.search))},
                      {"bits", cli::to_json(app::bits_table(*outcome.search))},
                      {"resolution_bytes", outcome.search->resolution},
                      {"interrupted", outcome.search->interrupted}};
  }
  return json;
}

/// Whether a processor without VNNI may saturate sums of the products of u8 and s8 codes: those of 7 bits are
/// small enough.
bool can_saturate(const quant::AnyRecipe& recipe) {
  constexpr int kSafeBits = 7;
  const quant::Recipe* tensors = quant::tensors_of(recipe);
  return tensors != nullptr && tensors->weight.scheme.bits > kSafeBits;
}

void show(const QuantizeFlags& flags, const app::QuantizeRun& run) {
  if (flags.json) return print_json(to_json(flags, run));
  const app::QuantizeOutcome& outcome = run.outcome;
  if (outcome.sensitivity) print_table(app::sensitivity_table(*outcome.sensitivity));
  if (!outcome.comparison.empty()) print_table(app::comparison_table(outcome.comparison));
  if (outcome.search) {
    print_table(app::bits_table(*outcome.search));
    print_table(app::measured_table(*outcome.search));
  }
  if (!run.plan) return;
  print_table(app::result_table(outcome));
  if (!is_onnx(flags) && !is_tflite(flags)) return report_written(flags, *run.plan, flags.out);
  std::cout << "wrote " << flags.out << ": " << file_bytes(flags.out) << " bytes\n";
  if (is_onnx(flags) && can_saturate(run.recipe.recipe))
    std::cout << "on processors without VNNI, ONNX Runtime needs the session option "
                 "session.x64quantprecision = \"1\" to compute without saturation\n";
}

std::vector<report::Fact> settings(const QuantizeFlags& flags, const app::QuantizeRun& run) {
  const app::ModeRecipe& recipe = run.recipe;
  std::vector<report::Fact> facts = {{"mode", run.outcome.mode}, {"data", flags.data}};
  const auto add_fields = [&](const nlohmann::json& fields) {
    for (const auto& [name, value] : fields.items()) facts.push_back({name, value.dump()});
  };
  const quant::Recipe* tensors = quant::tensors_of(recipe.recipe);
  if (tensors == nullptr) {
    add_fields(fields_to_json(recipe));
  } else if (tensors->backend == quant::Backend::binary) {
    facts.push_back({"backend", to_string(tensors->backend)});
    add_fields(fields_to_json(std::get<quant::QatRecipe>(recipe.recipe).options.binary));
  } else {
    facts.push_back({"backend", to_string(tensors->backend)});
    facts.push_back({"weights", tensors->weight.scheme.to_string()});
    facts.push_back({"activations", tensors->activation.scheme.to_string()});
  }
  if (std::holds_alternative<quant::QatRecipe>(recipe.recipe)) {
    facts.push_back({"epochs", std::to_string(recipe.training.options.epochs)});
    facts.push_back({"seed", std::to_string(recipe.training.options.seed)});
  } else if (app::needs_data(app::mode_of(recipe.recipe), recipe.recipe)) {
    if (!flags.calibration.empty()) facts.push_back({"calibration", flags.calibration});
    facts.push_back({"calibration samples", std::to_string(flags.samples)});
  }
  return facts;
}

void write_files(const QuantizeFlags& flags, app::QuantizeRun& run) {
  if (run.plan && is_onnx(flags)) {
    app::exchange_files.functions(kQuantizeWhere).export_onnx(*run.graph, flags.out, run.plan->metadata);
  } else if (run.plan && is_tflite(flags)) {
    app::exchange_files.functions(kQuantizeWhere).export_tflite(*run.graph, flags.out, flags.integer_io);
  } else if (run.plan) {
    run.plan->save(flags.out);
  }
  write_text(flags.save_recipe, run.recipe.to_json());
  if (flags.report.empty()) return;
  run.outcome.settings = settings(flags, run);
  const report::Report report = app::quantize_report(run.outcome);
  report.write_json(std::filesystem::path(flags.report) / "report.json");
  report.write_html(std::filesystem::path(flags.report) / "report.html");
}

/// The samples that accuracies are compared on.
app::SplitData trial_of(const QuantizeFlags& flags, const app::LoadedModel& model) {
  try {
    app::expect_sample_input(*model.graph, flags.model);
    app::expect_logits(*model.graph, flags.model);
  } catch (const FileError& error) {
    throw FileError(std::string(error.what()) + "; --test 0 quantizes it without a trial");
  }
  const app::SplitData test = app::load_split(flags.data, io::Split::test, model.spec);
  return model.spec.kind == app::NetworkKind::image ? test.first(flags.test) : test;
}

/// The same; nothing where nobody asked for data, and those there are do not fit.
std::optional<app::SplitData> trial_if_any(const QuantizeFlags& flags, bool needs_data,
                                           const app::LoadedModel& model) {
  if (flags.test == 0) return std::nullopt;
  try {
    return trial_of(flags, model);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    if (needs_data || flags.data_given || flags.compare) throw;
    std::cerr << "note: accuracies are not compared, since no --data is given and " << flags.data
              << " does not fit: " << printable(error.what()) << '\n';
    return std::nullopt;
  }
}

/// What calibrates, trains or is looked at for the sensitivity; labels are looked at by the latter two.
std::optional<app::SplitData> samples_for(const QuantizeFlags& flags, const Plan& plan,
                                          const app::LoadedModel& model) {
  const bool scored = flags.sensitivity || flags.keep_worst > 0 || flags.max_drop ||
                      (app::searches(plan.recipe.recipe) && flags.test > 0);
  if (!app::needs_data(plan.mode, plan.recipe.recipe) && !scored) return std::nullopt;
  const std::string& name = flags.calibration.empty() ? flags.data : flags.calibration;
  app::expect_sample_input(*model.graph, flags.model);
  if (!plan.mode.trains && !scored) return app::load_samples(name, model.spec);
  app::expect_logits(*model.graph, flags.model);
  return app::load_split(name, io::Split::train, model.spec);
}

/// Samples of several inputs have no labels, so nothing can be trained or judged with them.
void expect_no_labels_needed(const QuantizeFlags& flags, const app::QuantizeMode& mode) {
  const char* what = mode.trains                  ? "--mode qat"
                     : flags.sensitivity          ? "--sensitivity"
                     : flags.keep_worst > 0       ? "--keep-worst"
                     : flags.max_drop.has_value() ? "--max-drop"
                                                  : nullptr;
  if (what != nullptr)
    throw CLI::ValidationError(
        "--data", std::string("arrays named by inputs have no labels, which ") + what + " needs");
}

app::QuantizeRun quantize(const QuantizeFlags& flags, const Plan& plan) {
  const app::QuantizeMode& mode = plan.mode;
  app::LoadedModel model = app::load_any_model_file(flags.model, flags.shape.spec());
  app::expect_float(*model.graph, flags.model);
  app::merge_adapter(model, flags.adapter, flags.model);
  if (!flags.out.empty()) app::expect_engine_inputs(*model.graph, flags.model);
  if (is_onnx(flags)) app::exchange_files.functions(kQuantizeWhere).check_onnx(*model.graph);
  if (is_tflite(flags)) app::exchange_files.functions(kQuantizeWhere).check_tflite(*model.graph);
  if (flags.keep_zeros) prune::mask_zeros(*model.graph);
  const bool needs_data = app::needs_data(mode, plan.recipe.recipe);
  const bool scored = flags.sensitivity || flags.keep_worst > 0 || flags.max_drop;
  if (!needs_data && !scored && !flags.calibration.empty())
    throw CLI::ValidationError(std::string("--calibration is for modes and methods with data, got --mode ") +
                               mode.name);
  const std::string& samples_name = flags.calibration.empty() ? flags.data : flags.calibration;
  const std::optional<app::NamedInputs> named = app::load_named_inputs(samples_name, *model.graph);
  if (named) expect_no_labels_needed(flags, mode);
  const std::optional<app::SplitData> data = named ? std::nullopt : samples_for(flags, plan, model);
  const bool no_labels = named && (flags.calibration.empty() || !flags.data_given);
  const std::optional<app::SplitData> test =
      no_labels ? std::nullopt : trial_if_any(flags, needs_data, model);
  StageBars bars;
  return app::run_quantize(
      {.model = model.spec.name,
       .captured = model.graph,
       .mode = &mode,
       .recipe = plan.recipe,
       .data = data,
       .test = test,
       .samples = flags.samples,
       .inputs = named ? named->batches(flags.samples, kNamedBatch) : std::vector<std::vector<at::Tensor>>(),
       .saving = flags.checkpointing.saving(),
       .sensitivity = flags.sensitivity,
       .keep_worst = flags.keep_worst,
       .max_drop = flags.max_drop,
       .compare = flags.compare,
       .make_engine = !flags.out.empty(),
       .threads = flags.threads,
       .metadata = {{app::kModelSpecKey, model.spec.to_json()}},
       .continued = flags.continued,
       .progress = [&](const app::Stage& stage) { bars.show(stage); }});
}

void run(const QuantizeFlags& flags) {
  if (flags.explain.asked()) return flags.explain.run(flags);
  flags.check();
  const Plan plan = make_plan(flags);
  flags.check(plan.mode);
  check_fits_file(flags, plan);
  amp::prepare_training_memory();
  amp::prepare_training_products();
  apply(flags);
  const auto threads = adaptive_threads(flags);
  app::QuantizeRun run = quantize(flags, plan);
  write_files(flags, run);
  if (flags.verbose) {
    for (const std::string& line : run.outcome.quantized) std::cerr << printable(line) << '\n';
    for (const std::string& line : run.outcome.reasons) std::cerr << "note: " << printable(line) << '\n';
  }
  show(flags, run);
  if (run.outcome.search && run.outcome.search->interrupted)
    throw Interrupted();  // with the best so far written
}

void add_quantize(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command =
      add_command(app, "quantize", "Turn a trained model into an int8 engine file, and show what that costs",
                  "  ulp quantize model.safetensors --out model.int8.ulp\n"
                  "  ulp quantize model.safetensors --backend onnx_qdq --out model.int8.onnx\n"
                  "  ulp quantize model.safetensors --out model.int8.tflite --integer-io\n"
                  "  ulp quantize model.safetensors --mode qat --epochs 2 --out q.ulp --report .\n"
                  "  ulp quantize model.safetensors --mode qat --checkpoint q.ckpt --resume --out q.ulp\n"
                  "  ulp quantize model.safetensors --samples 5000 --recipe recipe.json --out q.ulp -v\n"
                  "  ulp quantize model.safetensors --sensitivity\n"
                  "  ulp quantize model.safetensors --keep-worst 2 --compare --out q.ulp\n"
                  "  ulp quantize bert.safetensors --method smoothquant --smoothquant-alpha auto --data "
                  "reviews.tsv --out bert.ulp\n"
                  "  ulp quantize lstm.safetensors --mode dynamic --data book.txt --out lstm.ulp\n"
                  "  ulp quantize gpt2.safetensors --mode weight-only --method gptq --group 128 --act-order "
                  "--data book.txt --out gpt2.ulp\n"
                  "  ulp quantize gpt2.safetensors --mode weight-only --max-bytes 400KiB --data book.txt "
                  "--out gpt2.ulp\n"
                  "  ulp quantize --explain \"1.5,-2;0.3,4\" --bits 4 --signed --symmetric --restricted\n",
                  *flags);
  say_threads_follow(*command);
  add_quantize_flags(*command, *flags);
  command->callback([flags, command] {
    flags->data_given = command->count("--data") > 0;
    run(*flags);
  });
}

const Command kQuantizeCommand("quantize", add_quantize);

}  // namespace

}  // namespace ulp::cli
