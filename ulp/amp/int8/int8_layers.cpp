#include "ulp/amp/int8/int8_layers.h"

#include "ulp/amp/int8/int8_linear.h"

namespace ulp::amp {

Int8LinearImpl::Int8LinearImpl(const torch::nn::LinearOptions& options, const Int8LayerRecipe& recipe)
    : torch::nn::LinearImpl(options), recipe_(recipe) {
  recipe_.validate();
}

at::Tensor Int8LinearImpl::forward(const at::Tensor& x) {
  return int8_linear(x, weight, bias, recipe_);
}

}  // namespace ulp::amp
