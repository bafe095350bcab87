#include "ulp/app/quantize/quantize_mode.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/methods/rotate_residual.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::app {

namespace {

constexpr int64_t kWeightBatch = 100;

/// Calibrates on lists of inputs.
QuantizedModel run_static_on_inputs(const QuantizeJob& job) {
  const auto feed = [&](graph::GraphModule& prepared) {
    const PollsInterrupts polls;
    int64_t done = 0;
    for (const std::vector<at::Tensor>& batch : job.inputs) {
      check_interrupted();
      prepared.forward_all(batch);
      if (job.progress) job.progress(++done, static_cast<int64_t>(job.inputs.size()), "");
    }
  };
  return app::quantize(job.captured, std::get<quant::StaticRecipe>(job.recipe.recipe), feed, job.on_layer);
}

QuantizedModel run_static(const QuantizeJob& job) {
  if (!job.inputs.empty()) return run_static_on_inputs(job);
  const int64_t samples = std::min(job.samples, job.data->samples());
  const auto& recipe = std::get<quant::StaticRecipe>(job.recipe.recipe);
  const auto on_samples = [&](int64_t done) {
    if (job.progress) job.progress(done, samples, "");
  };
  return app::quantize(job.captured, recipe, *job.data, job.samples, on_samples, job.on_layer);
}

QuantizedModel run_qat(const QuantizeJob& job) {
  return quantize_qat(
      job.captured, std::get<quant::QatRecipe>(job.recipe.recipe), *job.data, job.recipe.training,
      [&](const train::StepInfo& info, int64_t total) {
        char note[32];
        std::snprintf(note, sizeof note, "loss %.3f", info.loss);
        if (job.progress) job.progress(info.step + 1, total, note);
      },
      job.saving);
}

/// Signs change until the last step, and with them the statistics of batch norms.
quant::AnyRecipe qat_recipe(const quant::Recipe& tensors) {
  quant::QatRecipe recipe{.tensors = tensors};
  if (tensors.backend == quant::Backend::binary) recipe.freeze_batch_norm_after = 1;
  return recipe;
}

/// Layers that are done are counted, and for each of them the samples that have passed.
QuantizedModel run_weight_only(const QuantizeJob& job) {
  QuantizedModel result;
  const auto& recipe = std::get<quant::WeightOnlyRecipe>(job.recipe.recipe);
  if (recipe.rotate) result.scaled = quant::rotate_residual(job.captured);
  if (!recipe.needs_data()) {
    result.graph = quant::quantize_weights(job.captured, recipe, &result.report);
    return result;
  }
  const quant::CalibrationData data = calibration_data(job.data, job.inputs, job.samples);
  if (!data)
    fail("app.quantize", "expected calibration samples for the method ",
         recipe.takes(quant::WeightMethod::gptq) ? "gptq" : "awq", ", got none");
  const PollsInterrupts polls;
  const auto on_layer = [&](int64_t done, int64_t total, const std::string& layer) {
    check_interrupted();
    if (job.progress && done > 0) job.progress(done, total, layer);
  };
  result.graph = quant::quantize_weights(job.captured, recipe, data, &result.report, nullptr, on_layer);
  return result;
}

QuantizedModel run_without_data(const QuantizeJob& job) {
  QuantizedModel result;
  result.graph = quant::quantize(job.captured, job.recipe.recipe, {}, &result.report);
  return result;
}

const std::array kModes = {
    QuantizeMode{.name = "static",
                 .summary = "ranges of weights and activations from calibration samples",
                 .needs_data = true,
                 .trains = false,
                 .verb = "calibrating",
                 .unit = nullptr,
                 .default_recipe = [] { return ModeRecipe{quant::Recipe::x86_int8()}; },
                 .from_tensors = [](const quant::Recipe& tensors) -> quant::AnyRecipe { return tensors; },
                 .run = run_static},
    QuantizeMode{.name = "qat",
                 .summary = "trains on with rounded weights and activations",
                 .needs_data = true,
                 .trains = true,
                 .verb = "training",
                 .unit = "step",
                 .default_recipe = [] { return ModeRecipe{quant::QatRecipe{}}; },
                 .from_tensors = qat_recipe,
                 .run = run_qat},
    QuantizeMode{.name = "dynamic",
                 .summary =
                     "linear and recurrent layers with int8 weights quantize their input as they run; needs "
                     "no data",
                 .needs_data = false,
                 .trains = false,
                 .verb = "quantizing",
                 .unit = "layer",
                 .default_recipe = [] { return ModeRecipe{quant::DynamicRecipe{}}; },
                 .from_tensors = [](const quant::Recipe& tensors) -> quant::AnyRecipe {
                   return quant::dynamic_recipe(tensors);
                 },
                 .run = run_without_data},
    QuantizeMode{.name = "weight-only",
                 .summary =
                     "linear layers and embeddings keep weights of 4 bits, or 8, 3 or 2; needs no data but "
                     "for --method gptq and awq, and to search with --max-bytes and --max-loss",
                 .needs_data = false,
                 .trains = false,
                 .verb = "quantizing",
                 .unit = "layer",
                 .default_recipe = [] { return ModeRecipe{quant::WeightOnlyRecipe::four_bits()}; },
                 .from_tensors = [](const quant::Recipe& tensors) -> quant::AnyRecipe {
                   return quant::weight_options(tensors);
                 },
                 .run = run_weight_only}};

}  // namespace

quant::CalibrationData calibration_data(const std::optional<SplitData>& data,
                                        const std::vector<std::vector<at::Tensor>>& inputs, int64_t samples) {
  if (!data && inputs.empty()) return {};
  return [&data, &inputs, samples](const quant::RunBatch& run) {
    for (const std::vector<at::Tensor>& batch : inputs) {
      check_interrupted();
      run(batch);
    }
    if (!data) return;
    const auto batches = data->first(samples).stream({.batch = data->batch(kWeightBatch)});
    while (const auto batch = batches->next()) {
      check_interrupted();
      run({batch->inputs});
    }
  };
}

bool needs_data(const QuantizeMode& mode, const quant::AnyRecipe& recipe) {
  const auto* weights = std::get_if<quant::WeightOnlyRecipe>(&recipe);
  return mode.needs_data || (weights != nullptr && weights->needs_data());
}

bool searches(const quant::AnyRecipe& recipe) {
  const auto* weights = std::get_if<quant::WeightOnlyRecipe>(&recipe);
  return weights != nullptr && weights->search.has_value();
}

std::span<const QuantizeMode> quantize_modes() {
  return kModes;
}

const QuantizeMode& mode_of(const quant::AnyRecipe& recipe) {
  const auto* tensors = std::get_if<quant::Recipe>(&recipe);
  if (tensors != nullptr && tensors->backend == quant::Backend::weight_only) {
    return find_quantize_mode("weight-only");
  }
  if (tensors != nullptr && tensors->backend == quant::Backend::binary) return find_quantize_mode("qat");
  const auto same = [&](const QuantizeMode& mode) {
    return mode.default_recipe().recipe.index() == recipe.index();
  };
  return *std::ranges::find_if(kModes, same);
}

ModeRecipe recipe_for(const QuantizeMode& mode, ModeRecipe recipe) {
  if (const auto* tensors = std::get_if<quant::Recipe>(&recipe.recipe)) {
    quant::AnyRecipe meant = mode.from_tensors(*tensors);
    recipe.recipe = std::move(meant);
  }
  if (recipe.recipe.index() != mode.default_recipe().recipe.index()) {
    fail("app.quantize", "expected a recipe of mode ", mode.name, ", got one of type ",
         quant::type_of(recipe.recipe), ", which is for mode ", mode_of(recipe.recipe).name);
  }
  return recipe;
}

const QuantizeMode& find_quantize_mode(const std::string& name) {
  std::string names;
  for (const QuantizeMode& mode : kModes) {
    if (name == mode.name) return mode;
    names += (names.empty() ? "" : ", ") + std::string(mode.name);
  }
  fail("app.find_quantize_mode", "expected one of ", names, ", got '", name, "'");
}

}  // namespace ulp::app
