// Layers of int8 training for models of one's own.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// torch::nn::Linear whose products are in int8 (int8_linear()). Parameters stay fp32, or what the model is
/// cast to.
class ULP_API Int8LinearImpl : public torch::nn::LinearImpl {
 public:
  /// Throws as Int8LayerRecipe::validate().
  explicit Int8LinearImpl(const torch::nn::LinearOptions& options, const Int8LayerRecipe& recipe = {});
  at::Tensor forward(const at::Tensor& x);
  const Int8LayerRecipe& recipe() const { return recipe_; }  ///< what it was made with

 private:
  Int8LayerRecipe recipe_;
};
TORCH_MODULE(Int8Linear);

}  // namespace ulp::amp
