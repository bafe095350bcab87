#include "ulp/libtorch/conv_guard.h"

#include <torch/torch.h>

namespace ulp::libtorch {

bool needs_conv_guard(const at::Tensor& weight, at::IntArrayRef stride) {
  constexpr int64_t kVectorOfFloats = 16;
  const bool one_by_one = weight.dim() == 4 && weight.size(2) == 1 && weight.size(3) == 1;
  const bool strided = stride.size() == 2 && (stride[0] > 1 || stride[1] > 1);
  return one_by_one && strided && weight.size(1) < kVectorOfFloats;
}

at::Tensor guarded_conv2d(torch::nn::Conv2dImpl& layer, const at::Tensor& input) {
  const auto& options = layer.options;
  const auto* padding = std::get_if<torch::ExpandingArray<2>>(&options.padding());
  const bool unpadded = padding != nullptr && (**padding)[0] == 0 && (**padding)[1] == 0;
  if (!unpadded || !needs_conv_guard(layer.weight, *options.stride())) return layer.forward(input);
  const at::Tensor kept = torch::max_pool2d(input, /*kernel_size=*/1, *options.stride());
  const auto conv_options =
      torch::nn::functional::Conv2dFuncOptions().bias(layer.bias).groups(options.groups());
  return torch::nn::functional::conv2d(kept, layer.weight, conv_options);
}

}  // namespace ulp::libtorch
