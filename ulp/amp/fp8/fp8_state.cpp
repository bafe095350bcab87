#include "ulp/amp/fp8/fp8_state.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/amp/fp8/fp8_layers_of.h"
#include "ulp/amp/fp8/weight_cache.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr auto kRoles = static_cast<int64_t>(kFp8Roles.size());

/// The largest finite numbers of the roles' formats.
at::Tensor format_limits(const Fp8LayerRecipe& recipe, const at::Device& device) {
  std::array<double, kFp8Roles.size()> limits{};
  for (size_t i = 0; i < limits.size(); ++i) limits[i] = fp8_format(recipe, kFp8Roles[i]).max();
  return at::tensor(limits, at::kFloat).to(device);
}

}  // namespace

Fp8State Fp8State::make(const Fp8LayerRecipe& recipe, const at::Device& device) {
  if (recipe.scaling != Fp8Scaling::delayed) return {};
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  return {.scale = at::ones({kRoles}, options), .amax_history = at::zeros({kRoles, recipe.history}, options)};
}

at::Tensor Fp8State::scale_of(Fp8Role role) const {
  return scale.detach().select(0, static_cast<int64_t>(role)).clone();
}

void Fp8State::note(Fp8Role role, const at::Tensor& amax) const {
  const at::NoGradGuard no_grad;
  at::Tensor slot = amax_history.select(0, static_cast<int64_t>(role)).select(0, 0);
  const at::Tensor finite = at::where(amax.isfinite(), amax, at::zeros({}, amax.options()));
  slot.copy_(at::maximum(slot, finite));
}

void check_fp8_state(const Fp8State& state, const Fp8LayerRecipe& recipe) {
  if (recipe.scaling != Fp8Scaling::delayed) return;
  const auto fits = [](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.sizes() == sizes;
  };
  if (!fits(state.scale, {kRoles}) || !fits(state.amax_history, {kRoles, recipe.history})) {
    fail("amp.fp8", "expected f32 buffers ", kFp8ScaleName, " [3] and ", kFp8HistoryName, " [3, ",
         recipe.history, "] for delayed scaling, got others");
  }
}

void update_fp8_state(const Fp8State& state, const Fp8LayerRecipe& recipe) {
  const at::NoGradGuard no_grad;
  const at::Tensor current = state.amax_history.select(1, 0).clone();
  const at::Tensor seen = current > 0;
  const at::Tensor amax = recipe.amax == AmaxAlgorithm::max ? state.amax_history.amax(1) : current;
  const at::Tensor wanted = (format_limits(recipe, amax.device()) / amax) / std::exp2(recipe.margin);
  const at::Tensor scale = wanted.clamp_max(std::numeric_limits<float>::max());
  at::Tensor(state.scale).copy_(at::where(seen, scale, state.scale));
  const at::Tensor moved = at::roll(state.amax_history, -1, 1);
  moved.select(1, 0).zero_();
  at::Tensor(state.amax_history).copy_(at::where(seen.unsqueeze(1), moved, state.amax_history));
}

void update_fp8(torch::nn::Module& model, const AmaxReduction& reduce) {
  const at::NoGradGuard no_grad;
  const std::vector<Fp8LayerOf> layers = fp8_layers_of(model);
  if (reduce) {
    std::vector<at::Tensor> noted;
    for (const Fp8LayerOf& layer : layers) {
      if (layer.state.defined()) noted.push_back(layer.state.amax_history.select(1, 0));
    }
    if (!noted.empty()) {
      at::Tensor all = at::cat(noted);
      reduce(all);
      for (size_t i = 0; i < noted.size(); ++i)
        noted[i].copy_(all.narrow(0, static_cast<int64_t>(i) * kRoles, kRoles));
    }
  }
  for (const Fp8LayerOf& layer : layers) {
    if (layer.state.defined()) update_fp8_state(layer.state, layer.recipe);
  }
  forget_quantized_weights();
}

}  // namespace ulp::amp
