// ulp quantize: a trained model and data -> an int8 engine file, and what that cost.
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "cli/quantize_flags.h"
#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/lower/lower.h"
#include "ulp/report/format.h"
#include "ulp/train/data.h"
#include "ulp/train/model_file.h"
#include "ulp/train/quantize_mode.h"
#include "ulp/train/quantize_report.h"

namespace ulp::cli {

namespace {

constexpr int64_t kSensitivityImages = 256;
constexpr int64_t kCompareImages = 32;

quant::Recipe read_recipe(const std::string& recipe, const train::QuantizeMode& mode) {
  if (recipe.empty()) return mode.default_recipe();
  const std::vector<std::string> profiles = quant::recipe_profiles();
  if (std::find(profiles.begin(), profiles.end(), recipe) != profiles.end())
    return quant::Recipe::profile(recipe);
  std::ifstream in(recipe, std::ios::binary);
  if (!in) fail_file("cli.quantize", "could not read the recipe '", recipe, "'");
  std::ostringstream text;
  text << in.rdbuf();
  return quant::Recipe::from_json(text.str());
}

struct Work {
  const QuantizeFlags& flags;
  const train::QuantizeMode& mode;
  train::LoadedModel model;
  quant::Recipe recipe;
  std::optional<io::ImageDataset> data, test;
  train::QuantizeOutcome outcome;
};

/// The sum of a plan's constants.
int64_t weight_bytes(const runtime::Plan& plan) {
  int64_t bytes = 0;
  for (const auto& [name, constant] : plan.constants) bytes += static_cast<int64_t>(constant.bytes.size());
  return bytes;
}

std::optional<train::Accuracy> accuracy_of(const char* title, const runtime::Plan& plan, const Work& work) {
  if (!work.test) return std::nullopt;
  runtime::Engine engine(plan, {.threads = work.flags.threads});
  report::Progress progress(title, work.test->size(), {.unit = "image"});
  return train::evaluate(train::engine_classifier(engine), *work.test, 250,
                         [&](int64_t done) { progress.update(done); });
}

io::ImageDataset first(const io::ImageDataset& data, int64_t count) {
  return io::slice(data, 0, std::min(count, data.size()));
}

/// Every layer alone, on a calibrated copy; the recipe then leaves the worst ones out.
void measure_sensitivity(Work& work) {
  const QuantizeFlags& flags = work.flags;
  if (!flags.sensitivity && flags.keep_worst == 0) return;
  std::shared_ptr<quant::PreparedModule> calibrated;
  {
    report::Progress progress("calibrating", std::min(flags.samples, work.data->size()), {.unit = "image"});
    calibrated = train::calibrate(work.model.graph, work.recipe, *work.data, flags.samples,
                                  [&](int64_t done) { progress.update(done); });
  }
  const io::ImageDataset images = first(*work.test, kSensitivityImages);
  std::unique_ptr<report::Progress> progress;
  const auto show = [&](int64_t done, int64_t total) {
    if (!progress) {
      progress =
          std::make_unique<report::Progress>("sensitivity", total, report::ProgressOptions{.unit = "layer"});
    }
    progress->update(done);
  };
  const auto score = [&](graph::GraphModule& model) {
    return train::evaluate([&](const at::Tensor& x) { return model.forward(x); }, images).percent();
  };
  work.outcome.sensitivity = quant::sensitivity(calibrated, {train::first_images(images, images.size())},
                                                {.score = score, .progress = show});
  for (const std::string& value : work.outcome.sensitivity->worst(flags.keep_worst))
    work.recipe.skip_values.push_back(value);
}

train::QuantizedModel quantize(Work& work) {
  std::unique_ptr<report::Progress> shown;
  const auto show = [&](int64_t done, int64_t total, const std::string& note) {
    if (!shown) {
      shown = std::make_unique<report::Progress>(work.mode.verb, total,
                                                 report::ProgressOptions{.unit = work.mode.unit});
    }
    shown->update(done, note);
  };
  return work.mode.run({.captured = work.model.graph,
                        .recipe = work.recipe,
                        .data = work.data ? &*work.data : nullptr,
                        .samples = work.flags.samples,
                        .qat = work.flags.qat,
                        .progress = show});
}

/// Quantizes, writes the engine and fills in what the outcome knows of it.
runtime::Plan make_engine(Work& work) {
  train::QuantizeOutcome& outcome = work.outcome;
  const runtime::Plan float_plan = lower(*work.model.graph);  // before training changes the weights
  std::shared_ptr<graph::GraphModule> reference;
  if (work.flags.compare) {
    reference = train::load_model_file(work.flags.model, work.flags.shape.spec()).graph;
  }
  const train::QuantizedModel quantized = quantize(work);
  outcome.quantized = quantized.report.changes;
  outcome.reasons = quantized.report.near_misses;
  LowerOptions options{.metadata = {{train::kModelSpecKey, work.model.spec.to_json()},
                                    {"recipe", work.recipe.to_json()},
                                    {"mode", work.mode.name}}};
  options.report = [&](const std::string& line) {
    if (line.find(" not fused into ") != std::string::npos) outcome.reasons.push_back(line);
  };
  const runtime::Plan plan = lower(*quantized.graph, options);
  plan.save(work.flags.out);
  outcome.float_bytes = weight_bytes(float_plan);
  outcome.bytes = weight_bytes(plan);
  outcome.float_accuracy = accuracy_of("evaluate float", float_plan, work);
  outcome.accuracy = accuracy_of("evaluate quantized", plan, work);
  if (reference) {
    const at::Tensor images = train::first_images(*work.test, std::min(kCompareImages, work.test->size()));
    outcome.comparison = quant::compare(*reference, *quantized.graph, {images});
  }
  return plan;
}

nlohmann::json to_json(const Work& work, const runtime::Plan* plan) {
  const train::QuantizeOutcome& outcome = work.outcome;
  nlohmann::json json{{"mode", outcome.mode}};
  if (plan) {
    json.update({{"file", work.flags.out},
                 {"bytes", std::filesystem::file_size(work.flags.out)},
                 {"steps", plan->steps.size()},
                 {"weight_bytes", outcome.bytes},
                 {"float_weight_bytes", outcome.float_bytes}});
  }
  if (outcome.accuracy) {
    json["accuracy_percent"] = outcome.accuracy->percent();
    json["float_accuracy_percent"] = outcome.float_accuracy->percent();
  }
  if (!outcome.comparison.empty())
    json["comparison"] = cli::to_json(train::comparison_table(outcome.comparison));
  if (outcome.sensitivity) json["sensitivity"] = cli::to_json(train::sensitivity_table(*outcome.sensitivity));
  return json;
}

void show(const Work& work, const runtime::Plan* plan) {
  const train::QuantizeOutcome& outcome = work.outcome;
  if (work.flags.json) return print_json(to_json(work, plan));
  if (outcome.sensitivity) print_table(train::sensitivity_table(*outcome.sensitivity));
  if (!outcome.comparison.empty()) print_table(train::comparison_table(outcome.comparison));
  if (!plan) return;
  print_table(train::result_table(outcome));
  report_written(work.flags, *plan, work.flags.out);
}

void write_report(const Work& work) {
  if (work.flags.report.empty()) return;
  const report::Report report = train::quantize_report(work.outcome);
  report.write_json(std::filesystem::path(work.flags.report) / "report.json");
  report.write_html(std::filesystem::path(work.flags.report) / "report.html");
}

std::vector<report::Fact> settings(const QuantizeFlags& flags, const quant::Recipe& recipe) {
  std::vector<report::Fact> facts = {{"mode", flags.mode},
                                     {"data", flags.data},
                                     {"backend", to_string(recipe.backend)},
                                     {"activations", recipe.activation.scheme.to_string()},
                                     {"weights", recipe.weight.scheme.to_string()}};
  if (flags.mode == "qat") {
    facts.push_back({"epochs", std::to_string(flags.qat.train.epochs)});
    facts.push_back({"seed", std::to_string(flags.qat.train.seed)});
  } else {
    facts.push_back({"calibration images", std::to_string(flags.samples)});
  }
  return facts;
}

void run(const QuantizeFlags& flags) {
  if (flags.explain.asked()) return flags.explain.run(flags);
  flags.check();
  apply(flags);
  const train::QuantizeMode& mode = train::find_quantize_mode(flags.mode);
  quant::Recipe recipe = read_recipe(flags.recipe, mode);
  Work work{.flags = flags,
            .mode = mode,
            .model = train::load_model_file(flags.model, flags.shape.spec()),
            .recipe = std::move(recipe),
            .data = {},
            .test = {},
            .outcome = {}};
  const train::ModelSpec& spec = work.model.spec;
  work.outcome.model = spec.name;
  work.outcome.mode = mode.name;
  const bool calibrates = mode.needs_data || flags.sensitivity || flags.keep_worst > 0;
  if (calibrates) work.data = train::load_images(flags.data, io::Split::train, spec);
  if (flags.test > 0) work.test = first(train::load_images(flags.data, io::Split::test, spec), flags.test);
  measure_sensitivity(work);
  std::optional<runtime::Plan> plan;
  if (!flags.out.empty()) plan = make_engine(work);
  work.outcome.settings = settings(flags, work.recipe);
  if (!flags.save_recipe.empty()) {
    AtomicFile file(flags.save_recipe);
    file.write(work.recipe.to_json());
    file.commit();
  }
  write_report(work);
  if (flags.verbose) {
    for (const std::string& line : work.outcome.quantized) std::cerr << line << '\n';
    for (const std::string& line : work.outcome.reasons) std::cerr << "note: " << line << '\n';
  }
  show(work, plan ? &*plan : nullptr);
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command =
      add_command(app, "quantize", "Turn a trained model into an int8 engine file, and show what that costs",
                  "  ulp quantize model.safetensors --out model.int8.ulp\n"
                  "  ulp quantize model.safetensors --mode qat --epochs 2 --out q.ulp --report .\n"
                  "  ulp quantize model.safetensors --samples 5000 --recipe recipe.json --out q.ulp -v\n"
                  "  ulp quantize model.safetensors --sensitivity\n"
                  "  ulp quantize model.safetensors --keep-worst 2 --compare --out q.ulp\n"
                  "  ulp quantize --explain \"1.5,-2;0.3,4\" --bits 4 --signed --symmetric --restricted\n",
                  *flags);
  add_quantize_flags(*command, *flags);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
