// The state of delayed scaling: the scales of a layer's tensors and the largest magnitudes of earlier steps,
// as two buffers of the layer's module, so that state_dict, checkpoints and to() carry them.
//
// Within a step the scales stay as they are: each forward and backward notes the largest magnitude (amax) it sees in
// slot 0 of the history, the larger one where there are several (accumulation, a layer used twice). update_fp8(),
// once a step, makes scales and moves the history on, as Transformer Engine does:
//
//   scale = M 2^-margin / (the largest of the history with slot 0, or slot 0 alone), at most FLT_MAX
//   the history moves by one slot, the oldest amax is forgotten, slot 0 is 0
//
// A tensor that holds an infinity or a NaN notes nothing, and a tensor of which nothing (or 0) was noted keeps its
// scale and its history in that step. So an infinity costs the one step it is in; it never enters the history. In
// Transformer Engine an infinite amax stays in the history and freezes the scale for as many steps as that is long.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_tensor.h"
#include "ulp/base/export.h"

namespace torch::nn {
class Module;
}

namespace ulp::amp {

/// The names of the buffers in the layer's module.
inline constexpr const char* kFp8ScaleName = "fp8_scale";
inline constexpr const char* kFp8HistoryName = "fp8_amax_history";

/// The buffers of one layer; undefined for recipes that remember nothing.
struct Fp8State {
  at::Tensor scale;         ///< f32 [3], by role; 1 at first
  at::Tensor amax_history;  ///< f32 [3, history], by role; 0 at first

  /// New ones for this recipe.
  ULP_API static Fp8State make(const Fp8LayerRecipe& recipe, const at::Device& device);
  bool defined() const { return scale.defined(); }
  /// The scale of a role, f32 of no dimensions.
  ULP_API at::Tensor scale_of(Fp8Role role) const;
  /// Notes the amax of a tensor in slot 0.
  ULP_API void note(Fp8Role role, const at::Tensor& amax) const;
};

/// Throws ulp::Error for buffers that do not belong to the recipe.
ULP_API void check_fp8_state(const Fp8State& state, const Fp8LayerRecipe& recipe);

/// Makes one tensor (f32 of one dimension, finite and not negative) its elementwise maximum over all processes, in
/// place. Every process calls it with the same number of elements.
using AmaxReduction = std::function<void(at::Tensor& amaxes)>;

/// To be called once a step, after the backward passes: new scales for every layer of the module with delayed scaling,
/// and weights are quantized anew from then on. `reduce`: so that all processes have the same scales.
ULP_API void update_fp8(torch::nn::Module& model, const AmaxReduction& reduce = {});

/// Updates the buffers of one layer.
ULP_API void update_fp8_state(const Fp8State& state, const Fp8LayerRecipe& recipe);

}  // namespace ulp::amp
