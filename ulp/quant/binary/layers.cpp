#include "ulp/quant/binary/layers.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/libtorch/conv_guard.h"
#include "ulp/quant/binary/binary_scale.h"

namespace ulp::quant {
namespace {

/// One number a channel, to be combined with dimension 1 of x.
at::Tensor over_channels(const at::Tensor& values, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(std::max<int64_t>(x.dim() - 1, 1)), 1);
  shape[0] = -1;
  return values.view(shape);
}

at::Tensor signs_of_weight(const at::Tensor& weight, const BinaryLayerOptions& binary) {
  return binary.ternary ? ternarize(weight) : binarize(weight);
}

std::vector<at::Tensor> register_scales(torch::nn::Module& module, const BinaryLayerOptions& binary,
                                        const at::Tensor& weight, at::IntArrayRef result) {
  std::vector<at::Tensor> scales;
  if (binary.ternary) return scales;
  for (auto& [name, tensor] : start_scales(binary.scale, weight, result))
    scales.push_back(module.register_parameter(name, tensor));
  return scales;
}

/// What the sums are multiplied by, and the bias, in the order in which the engine rounds.
at::Tensor finish(at::Tensor y, const at::Tensor& weight, const at::Tensor& bias,
                  const BinaryLayerOptions& binary, const std::vector<at::Tensor>& scales, int64_t dims) {
  if (!binary.ternary && binary.scale == BinaryScale::mean) y = y * mean_scale(weight, dims);
  if (!scales.empty()) {
    at::Tensor scale = scales.front();
    for (size_t i = 1; i < scales.size(); ++i) scale = scale * scales[i];
    y = y * scale;
  }
  if (!bias.defined()) return y;
  return dims == 1 ? y + bias : y + over_channels(bias, y);
}

}  // namespace

BinaryConv2dImpl::BinaryConv2dImpl(const torch::nn::Conv2dOptions& options, const BinaryLayerOptions& binary,
                                   const std::vector<int64_t>& result, bool signs)
    : torch::nn::Conv2dImpl(options), binary_(binary), signs_(signs) {
  if (!std::holds_alternative<torch::ExpandingArray<2>>(options.padding())) {
    fail("quant.BinaryConv2d", "expected the padding as numbers, got a word");
  }
  if (!std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) {
    fail("quant.BinaryConv2d", "expected the padding of BinaryLayerOptions, got another padding_mode");
  }
  if (binary.activation_scale) {
    const std::string obstacle = box_obstacle(
        options.kernel_size(), std::get<torch::ExpandingArray<2>>(options.padding()), options.dilation());
    if (!obstacle.empty()) fail("quant.BinaryConv2d", "expected another window: ", obstacle);
  }
  std::vector<int64_t> sizes = {options.out_channels()};
  sizes.insert(sizes.end(), result.begin(), result.end());
  if (result.empty()) sizes = {options.out_channels(), 1, 1};
  const bool of_pixels = is_learned(binary.scale) && binary.scale != BinaryScale::output && !binary.ternary;
  if (of_pixels && result.size() != 2) {
    fail("quant.BinaryConv2d", "expected the sizes [h, w] of the result for a scale '",
         enum_name(binary.scale), "', got ", result);
  }
  scales_ = register_scales(*this, binary, weight, sizes);
}

at::Tensor BinaryConv2dImpl::forward(const at::Tensor& x) {
  const at::IntArrayRef pad = std::get<torch::ExpandingArray<2>>(options.padding());
  at::Tensor in = signs_ ? x : binarize(x, binary_.gradient);
  std::vector<int64_t> padding = pad.vec(), stride = at::IntArrayRef(options.stride()).vec();
  if (binary_.padding == BinaryPadding::one && (padding[0] > 0 || padding[1] > 0)) {
    in = at::constant_pad_nd(in, {padding[1], padding[1], padding[0], padding[0]}, 1);
    padding = {0, 0};
  }
  if (padding == std::vector<int64_t>{0, 0} && libtorch::needs_conv_guard(weight, stride)) {
    in = at::max_pool2d(in, 1, stride);
    stride = {1, 1};
  }
  at::Tensor y = at::conv2d(in, signs_of_weight(weight, binary_), {}, stride, padding, options.dilation(),
                            options.groups());
  if (binary_.activation_scale) {
    y = y * at::avg_pool2d(x.abs().mean(1, /*keepdim=*/true), options.kernel_size(), options.stride(), pad);
  }
  return finish(y, weight, bias, binary_, scales_, 3);
}

BinaryLinearImpl::BinaryLinearImpl(const torch::nn::LinearOptions& options, const BinaryLayerOptions& binary,
                                   bool signs)
    : torch::nn::LinearImpl(options), binary_(binary), signs_(signs) {
  scales_ = register_scales(*this, binary, weight, {options.out_features()});
}

at::Tensor BinaryLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor in = signs_ ? x : binarize(x, binary_.gradient);
  at::Tensor y = at::linear(in, signs_of_weight(weight, binary_));
  if (binary_.activation_scale) y = y * x.abs().mean(-1, /*keepdim=*/true);
  return finish(y, weight, bias, binary_, scales_, 1);
}

at::Tensor SignImpl::forward(const at::Tensor& x) {
  return binarize(x, gradient_);
}

RSignImpl::RSignImpl(int64_t channels, SignGradient gradient) : gradient_(gradient) {
  shift = register_parameter("shift", torch::zeros({channels}));
}

at::Tensor RSignImpl::forward(const at::Tensor& x) {
  return binarize(x + over_channels(shift, x), gradient_);
}

RPReLUImpl::RPReLUImpl(int64_t channels) {
  before = register_parameter("before", torch::zeros({channels}));
  slope = register_parameter("slope", torch::full({channels}, 0.25));
  after = register_parameter("after", torch::zeros({channels}));
}

at::Tensor RPReLUImpl::forward(const at::Tensor& x) {
  return at::prelu(x + over_channels(before, x), slope) + over_channels(after, x);
}

}  // namespace ulp::quant
