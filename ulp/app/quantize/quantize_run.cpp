#include "ulp/app/quantize/quantize_run.h"

#include <torch/utils.h>

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <sstream>

#include "ulp/app/data/data.h"
#include "ulp/app/quantize/mixed_precision_run.h"
#include "ulp/app/quantize/plan_metrics.h"
#include "ulp/base/error.h"
#include "ulp/graph/module_copy.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/methods/rotate_residual.h"

namespace ulp::app {

namespace {

constexpr int64_t kSensitivitySamples = 256;
constexpr int64_t kCompareSamples = 32;
constexpr int64_t kTestBatch = 250;
/// The pass of lower() that says which layers run on bits, and which do not.
constexpr const char* kBinaryPass = "fuse_binary";

class QuantizeRunner {
 public:
  explicit QuantizeRunner(const QuantizeRequest& request) : request_(request) {
    run_.recipe = request.recipe;
    run_.outcome.model = request.model;
    run_.outcome.mode = request.mode->name;
  }

  QuantizeRun run() {
    if (request_.max_drop && request_.mode->trains)
      fail("app.run_quantize", "expected a mode that does not train for max_drop, got ", request_.mode->name);
    if (request_.sensitivity || request_.keep_worst > 0 || request_.max_drop) measure_sensitivity();
    run_.outcome.reasons = sensitivity_notes_;
    if (!request_.make_engine) return std::move(run_);
    lower_float();
    if (searches(run_.recipe.recipe)) search();
    make_engine();
    if (request_.max_drop) stay_within(*request_.max_drop);
    return std::move(run_);
  }

 private:
  void show(Stage stage) const {
    if (request_.progress) request_.progress(stage);
  }

  /// Decides the bits of weights, and keeps the model that has them.
  void search() {
    quant::MixedPrecision found = search_weights(request_);
    found_ = QuantizedModel{.graph = std::move(found.model), .report = std::move(found.report)};
    if (found.recipe.rotate) found_->scaled = quant::rotate_residual(request_.captured);
    run_.recipe.recipe = found.recipe;
    run_.outcome.search = std::move(found);
  }
  bool interrupted() const { return run_.outcome.search && run_.outcome.search->interrupted; }

  void measure_sensitivity() {
    if (!request_.data || !request_.test)
      fail("app.run_quantize", "expected training and test samples for the sensitivity, got none");
    quant::Recipe* tensors = quant::tensors_of(run_.recipe.recipe);
    if (tensors == nullptr) {
      fail("app.run_quantize", "expected a mode with quantized activations for the sensitivity, got ",
           request_.mode->name);
    }
    const int64_t samples = std::min(request_.samples, request_.data->samples());
    quant::Recipe plain = *tensors;
    plain.methods = {};
    if (tensors->methods.any())
      sensitivity_notes_.emplace_back("the sensitivity is that of layers quantized without the methods");
    const auto calibrated =
        calibrate(request_.captured, plain, *request_.data, request_.samples, [&](int64_t done) {
          show({"calibrating for the sensitivity", request_.data->unit, done, samples});
        });
    const SplitData tried = request_.test->first(kSensitivitySamples);
    const auto score = [&](graph::GraphModule& model) {
      const auto batches = tried.stream({.batch = tried.batch(kTestBatch)});
      return train::evaluate([&](const train::TaskBatch& batch) { return model.forward(batch.inputs); },
                             *batches)
          .percent();
    };
    const auto progress = [&](int64_t done, int64_t total) { show({"sensitivity", "layer", done, total}); };
    run_.outcome.sensitivity =
        quant::sensitivity(calibrated, {tried.first_inputs(tried.batch(kSensitivitySamples))},
                           {.score = score, .progress = progress});
    leave_in_float(request_.keep_worst);
  }

  /// Adds the worst layers to those that stay in float, until so many of them, or all, are.
  void leave_in_float(int64_t count) {
    const std::vector<std::string> worst = run_.outcome.sensitivity->worst(count);
    quant::Recipe& tensors = *quant::tensors_of(run_.recipe.recipe);
    for (; kept_ < worst.size(); ++kept_) tensors.skip_values.push_back(worst[kept_]);
  }

  /// Points of accuracy that the engine loses.
  double drop() const { return run_.outcome.float_accuracy->percent() - run_.outcome.accuracy->percent(); }

  /// Makes the engine again with twice as many layers in float until it loses at most so many points, or one
  /// layer is left.
  void stay_within(double most) {
    const std::vector<quant::LayerSensitivity>& layers = run_.outcome.sensitivity->layers;
    while (drop() > most && kept_ + 1 < layers.size()) {
      leave_in_float(static_cast<int64_t>(std::min(std::max<size_t>(1, 2 * kept_), layers.size() - 1)));
      make_engine();
    }
    for (size_t i = 0; i < kept_; ++i) say_why(layers[i], most);
  }

  void say_why(const quant::LayerSensitivity& layer, double most) {
    std::ostringstream reason;
    reason << layer.layer << " stays in float, for at most " << most
           << " points less: quantized alone it brings the result to " << std::fixed << std::setprecision(1)
           << layer.error.sqnr_db << " dB";
    run_.outcome.reasons.push_back(std::move(reason).str());
  }

  std::optional<train::Accuracy> accuracy_of(const char* title, const runtime::Plan& plan) const {
    if (!request_.test) return std::nullopt;
    const auto batches = request_.test->stream({.batch = request_.test->batch(kTestBatch)});
    return app::accuracy_of(plan, *batches, request_.threads, [&](int64_t done) {
      show({title, request_.test->unit, done, batches->samples()});
    });
  }

  /// Before training changes the weights. It is evaluated behind all that can be wrong with a recipe.
  void lower_float() {
    float_plan_ = lower(*request_.captured);
    run_.outcome.float_bytes = weight_bytes(*float_plan_);
  }

  void evaluate_float() {
    if (!float_plan_) return;
    run_.outcome.float_accuracy = accuracy_of("evaluate float", *float_plan_);
    float_plan_.reset();
  }

  void make_engine() {
    QuantizeOutcome& outcome = run_.outcome;
    const QuantizeMode& mode = *request_.mode;
    const auto reference = request_.compare ? graph::copy_of(*request_.captured) : nullptr;
    const QuantizedModel quantized =
        found_ ? *found_
               : mode.run({.captured = request_.captured,
                           .recipe = run_.recipe,
                           .data = request_.data,
                           .samples = request_.samples,
                           .inputs = request_.inputs,
                           .saving = request_.saving,
                           .progress =
                               [&](int64_t done, int64_t total, const std::string& note) {
                                 show({mode.verb,
                                       mode.unit != nullptr ? mode.unit
                                       : request_.data      ? request_.data->unit
                                                            : "batch",
                                       done, total, note});
                               },
                           .on_layer =
                               [&](int64_t done, int64_t total, const std::string& layer) {
                                 show({"deciding codes", "layer", done, total, layer});
                               }});
    outcome.quantized = quantized.report.changes;
    outcome.reasons = sensitivity_notes_;
    std::ranges::copy(quantized.report.near_misses, std::back_inserter(outcome.reasons));
    LowerOptions options{.continued = request_.continued, .metadata = request_.metadata};
    options.metadata["recipe"] = run_.recipe.to_json();
    options.metadata["mode"] = mode.name;
    graph::PassReport lowered;
    run_.plan = lower(*quantized.graph, options, &lowered);
    run_.graph = quantized.graph;
    std::ranges::copy(lowered.near_misses, std::back_inserter(outcome.reasons));
    for (const graph::PassReport& part : lowered.parts) {
      if (part.pass != kBinaryPass) continue;
      std::ranges::copy(part.changes, std::back_inserter(outcome.quantized));
      std::ranges::copy(part.near_misses, std::back_inserter(outcome.reasons));
    }
    outcome.bytes = weight_bytes(*run_.plan);
    if (interrupted()) return;  // what was found is kept, and nothing more is measured
    evaluate_float();
    outcome.accuracy = accuracy_of("evaluate quantized", *run_.plan);
    if (!reference) return;
    if (!request_.test && request_.inputs.empty())
      fail("app.run_quantize", "expected test samples for the comparison, got none");
    // Where methods scaled channels, values are those of the scaled network, which computes the same.
    outcome.comparison = quant::compare(
        quantized.scaled ? *quantized.scaled : *reference, *quantized.graph,
        request_.test
            ? std::vector<at::Tensor>{request_.test->first_inputs(request_.test->batch(kCompareSamples))}
            : request_.inputs.front());
  }

  const QuantizeRequest& request_;
  QuantizeRun run_;
  std::optional<runtime::Plan> float_plan_{};  ///< until it is evaluated
  std::optional<QuantizedModel> found_{};      ///< by a search
  std::vector<std::string> sensitivity_notes_{};
  size_t kept_ = 0;  ///< layers of the sensitivity, worst first, that stay in float
};

}  // namespace

QuantizeRun run_quantize(const QuantizeRequest& request) {
  return QuantizeRunner(request).run();
}

}  // namespace ulp::app
