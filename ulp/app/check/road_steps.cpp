// The steps of the road that infer: engines, quantized models, files for other runtimes.
#include "ulp/app/check/road_steps.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "ulp/app/model_io/inspect.h"
#include "ulp/app/model_io/scratch_folder.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/graph/module_copy.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/report/format.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

namespace {

/// Largest difference of an engine in fp32 from the model, of the largest element of the result: sums in
/// another order.
constexpr double kExactEngine = 1e-3;

RoadOutcome file_of(uint64_t bytes) {
  return {"a file of " + report::format_bytes(static_cast<double>(bytes))};
}

/// Floating results are close to those of the model.
void expect_close(const std::vector<at::Tensor>& want, const std::vector<at::Tensor>& got) {
  if (want.size() != got.size())
    fail("road_report", "expected ", want.size(), " results from the engine, got ", got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!at::isFloatingType(want[i].scalar_type()) || want[i].numel() == 0) continue;
    const at::Tensor w = want[i].to(at::kDouble), g = got[i].to(at::kDouble).reshape(w.sizes());
    const double largest = w.abs().max().item<double>(), error = (w - g).abs().max().item<double>();
    if (!(error <= kExactEngine * largest + 1e-6))
      fail("road_report", "expected the results of the model from the engine, got result ", i,
           " that differs by ", error, " of at most ", largest);
  }
}

/// Every line of a report and its parts that says what was left out.
void add_left(const graph::PassReport& report, std::vector<std::string>& left) {
  left.insert(left.end(), report.near_misses.begin(), report.near_misses.end());
  for (const graph::PassReport& part : report.parts) add_left(part, left);
}

/// "int8 in 4 places, an engine of ...".
RoadOutcome quantized_engine(const RoadSetting& setting, graph::GraphModule& model,
                             const graph::PassReport& report) {
  RoadOutcome outcome = tried_engine(setting, model, /*bf16=*/false, /*exact=*/false);
  outcome.says = std::to_string(report.changes.size()) + " quantized, " + outcome.says;
  add_left(report, outcome.left);
  return outcome;
}

std::shared_ptr<graph::GraphModule> statically_quantized(const RoadSetting& setting,
                                                         const quant::Recipe& recipe,
                                                         graph::PassReport* report = nullptr) {
  return quant::quantize(
      own_copy(setting), quant::StaticRecipe(recipe),
      [&](graph::GraphModule& prepared) {
        const at::NoGradGuard no_grad;
        prepared.forward_all(setting.inputs);
      },
      report);
}

RoadOutcome tried_run(const RoadSetting& setting) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> results = own_copy(setting)->forward_all(setting.inputs);
  expect_finite(results, "the model");
  std::string shapes;
  for (const at::Tensor& result : results) shapes += (shapes.empty() ? "" : ", ") + c10::str(result.sizes());
  return {"results of " + shapes};
}

RoadOutcome tried_pieces(const RoadSetting& setting) {
  const auto model = own_copy(setting);
  PartitionedModel pieces = lower_partitioned(model, setting.inputs, {}, {.max_measuring_seconds = 0});
  expect_close(setting.results, pieces.run(setting.inputs));
  int64_t engines = 0, others = 0;
  RoadOutcome outcome;
  for (const PartitionInfo& piece : pieces.partitions()) {
    ++(piece.engine ? engines : others);
    outcome.left.insert(outcome.left.end(), piece.why.begin(), piece.why.end());
  }
  const auto count = [](int64_t number, const char* what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  outcome.says = count(engines, "engine") + " and " + count(others, "piece") + " in LibTorch";
  return outcome;
}

RoadOutcome tried_static(const RoadSetting& setting) {
  graph::PassReport report;
  const auto model = statically_quantized(setting, quant::Recipe::x86_int8(), &report);
  return quantized_engine(setting, *model, report);
}

RoadOutcome tried_dynamic(const RoadSetting& setting) {
  graph::PassReport report;
  const auto model = quant::quantize(own_copy(setting), quant::DynamicRecipe{}, &report);
  return quantized_engine(setting, *model, report);
}

RoadOutcome tried_weights(const RoadSetting& setting, const quant::WeightOnlyRecipe& recipe) {
  graph::PassReport report;
  const auto model = quant::quantize(own_copy(setting), recipe, &report);
  return quantized_engine(setting, *model, report);
}

RoadOutcome tried_coreml(const RoadSetting& setting) {
  const ScratchFolder folder("ulp_road");
  exchange::export_coreml(*own_copy(setting), folder.path() / "model.mlpackage");
  return file_of(bytes_of_files(folder.path()));
}

std::vector<RoadTrial> engine_trials() {
  const auto engine = [](bool bf16) {
    return [bf16](const RoadSetting& setting) {
      return tried_engine(setting, *own_copy(setting), bf16, /*exact=*/!bf16);
    };
  };
  return {{{"engine", "engine in fp32"}, engine(false)},
          {{"engine:bf16", "engine in bf16"}, engine(true)},
          {{"pieces", "engines for what they have, LibTorch for the rest"}, tried_pieces},
          {{"int8", "static int8, as an engine"}, tried_static},
          {{"dynamic", "dynamic int8, as an engine"}, tried_dynamic},
          {{"weight_only", "weights in 8 bits, as an engine"},
           [](const RoadSetting& setting) { return tried_weights(setting, {}); }},
          {{"weight_only:4", "weights in 4 bits, as an engine"}, [](const RoadSetting& setting) {
             return tried_weights(setting, quant::WeightOnlyRecipe::four_bits());
           }}};
}

std::vector<RoadTrial> file_trials() {
  using Bytes = std::string (*)(const graph::GraphModule& model);
  const Bytes onnx = [](const graph::GraphModule&model) { return exchange::export_onnx(model); },
              tflite = [](const graph::GraphModule&model) { return exchange::export_tflite(model); },
              pt2 = [](const graph::GraphModule&model) { return exchange::export_pt2(model); };
  const auto plain = [](Bytes bytes) {
    return [bytes](const RoadSetting& setting) { return file_of(bytes(*own_copy(setting)).size()); };
  };
  const auto quantized = [](Bytes bytes, quant::Recipe (*recipe)()) {
    return [bytes, recipe](const RoadSetting& setting) {
      graph::PassReport report;
      RoadOutcome outcome = file_of(bytes(*statically_quantized(setting, recipe(), &report)).size());
      outcome.says = std::to_string(report.changes.size()) + " quantized, " + outcome.says;
      add_left(report, outcome.left);
      return outcome;
    };
  };
  return {
      {{"onnx", "ONNX file"}, plain(onnx)},
      {{"onnx_qdq", "ONNX file in static int8"}, quantized(onnx, quant::Recipe::onnx_qdq)},
      {{"tflite", "TensorFlow Lite file"}, plain(tflite)},
      {{"tflite_int8", "TensorFlow Lite file in static int8"}, quantized(tflite, quant::Recipe::tflite_int8)},
      {{"coreml", "Core ML package"}, tried_coreml},
      {{"pt2", "archive of torch.export"}, plain(pt2)}};
}

}  // namespace

std::shared_ptr<graph::GraphModule> own_copy(const RoadSetting& setting) {
  auto copy = graph::copy_of(setting.model);
  copy->eval();
  return copy;
}

void expect_finite(const std::vector<at::Tensor>& results, const char* what) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!at::isFloatingType(results[i].scalar_type())) continue;
    if (!results[i].isfinite().all().item<bool>())
      fail("road_report", "expected finite results of ", what, ", got inf or NaN in result ", i);
  }
}

RoadOutcome tried_engine(const RoadSetting& setting, graph::GraphModule& model, bool bf16, bool exact) {
  const at::NoGradGuard no_grad;
  const auto precision = bf16 ? LowerOptions::Precision::bf16 : LowerOptions::Precision::f32;
  const runtime::Plan plan = lower(model, {.precision = precision});
  runtime::Engine engine(plan, {.max_measuring_seconds = 0});
  const std::vector<at::Tensor> results = run_engine_all(engine, setting.inputs);
  expect_finite(results, "the engine");
  if (exact) expect_close(setting.results, results);
  return {"an engine of " + std::to_string(plan.steps.size()) + " steps and " +
          report::format_bytes(static_cast<double>(engine.constant_bytes()))};
}

const std::vector<RoadTrial>& road_trials() {
  static const std::vector<RoadTrial> trials = [] {
    std::vector<RoadTrial> all{{{"run", "the model as it is"}, tried_run}};
    for (const auto& part : {training_trials(), engine_trials(), change_trials(), file_trials()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return trials;
}

}  // namespace ulp::app
