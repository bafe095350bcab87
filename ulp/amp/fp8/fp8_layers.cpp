#include "ulp/amp/fp8/fp8_layers.h"

#include <torch/types.h>

#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/base/error.h"

namespace ulp::amp {

Fp8Layer::Fp8Layer(torch::nn::Module& module, std::optional<Fp8LayerRecipe> recipe)
    : own_(std::move(recipe)) {
  if (!own_) return;
  own_->validate();
  use(module, *own_);
}

void Fp8Layer::use(torch::nn::Module& module, const Fp8LayerRecipe& recipe) {
  const std::optional<Fp8LayerRecipe> before = std::exchange(used_, recipe);
  if (recipe.scaling != Fp8Scaling::delayed ||
      (before && before->scaling == Fp8Scaling::delayed && before->history == recipe.history)) {
    return;
  }
  const Fp8State state = Fp8State::make(recipe, module.parameters(/*recurse=*/false).front().device());
  for (const auto& [name, tensor] :
       {std::pair{kFp8ScaleName, state.scale}, std::pair{kFp8HistoryName, state.amax_history}}) {
    if (at::Tensor* buffer = const_cast<at::Tensor*>(module.named_buffers(/*recurse=*/false).find(name))) {
      buffer->set_data(tensor);  // another history
    } else {
      module.register_buffer(name, tensor);
    }
  }
}

std::optional<Fp8LayerRecipe> Fp8Layer::recipe_now(torch::nn::Module& module) {
  const Fp8Setting setting = Fp8Setting::current();
  if (!setting.enabled) return std::nullopt;
  if (own_) return own_;
  if (!setting.recipe) return std::nullopt;
  if (!used_ || !(*used_ == *setting.recipe)) use(module, *setting.recipe);
  return used_;
}

Fp8State Fp8Layer::state_of(const torch::nn::Module& module) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  const auto find = [&](const char* name) {
    const at::Tensor* buffer = buffers.find(name);
    return buffer == nullptr ? at::Tensor() : *buffer;
  };
  return {find(kFp8ScaleName), find(kFp8HistoryName)};
}

Fp8LinearImpl::Fp8LinearImpl(const torch::nn::LinearOptions& options, std::optional<Fp8LayerRecipe> recipe)
    : torch::nn::LinearImpl(options), Fp8Layer(*this, std::move(recipe)) {}

at::Tensor Fp8LinearImpl::forward(const at::Tensor& x) {
  const auto recipe = recipe_now(*this);
  return recipe ? fp8_linear(x, weight, bias, *recipe, state_of(*this), path()) : LinearImpl::forward(x);
}

Fp8Conv2dImpl::Fp8Conv2dImpl(const torch::nn::Conv2dOptions& options, std::optional<Fp8LayerRecipe> recipe)
    : torch::nn::Conv2dImpl(options), Fp8Layer(*this, std::move(recipe)) {
  if (!std::holds_alternative<torch::ExpandingArray<2>>(options.padding()) ||
      !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) {
    fail("amp.Fp8Conv2d", "expected the padding as numbers, of zeros, got another one");
  }
}

at::Tensor Fp8Conv2dImpl::forward(const at::Tensor& x) {
  const auto recipe = recipe_now(*this);
  if (!recipe) return Conv2dImpl::forward(x);
  const ConvolutionShape shape{at::IntArrayRef(options.stride()).vec(),
                               at::IntArrayRef(std::get<torch::ExpandingArray<2>>(options.padding())).vec(),
                               at::IntArrayRef(options.dilation()).vec(), options.groups()};
  return fp8_convolution(x, weight, bias, shape, *recipe, state_of(*this), path());
}

}  // namespace ulp::amp
