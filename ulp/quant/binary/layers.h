// Layers of binary networks for models of one's own. Captured, they are the ops that prepare_qat() makes with
// Recipe::binary(), and ulp::lower runs both alike.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "ulp/base/export.h"
#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

/// torch::nn::Conv2d on signs: y = (sign(x) * sign(W)) scale + bias. The parameter `weight` is the latent one, which
/// clip_latent_weights() keeps in [-1, 1]. `result`: the sizes [h, w] of the result, for scales of pixels. Paddings are
/// numbers. Signs as an input (Sign, RSign) are told by `signs`: the gradient then passes as it is.
class ULP_API BinaryConv2dImpl : public torch::nn::Conv2dImpl {
 public:
  explicit BinaryConv2dImpl(const torch::nn::Conv2dOptions& options, const BinaryLayerOptions& binary = {},
                            const std::vector<int64_t>& result = {}, bool signs = false);
  at::Tensor forward(const at::Tensor& x);
  const BinaryLayerOptions& binary() const { return binary_; }  ///< what it was made with

 private:
  BinaryLayerOptions binary_;
  bool signs_;
  std::vector<at::Tensor> scales_;
};
TORCH_MODULE(BinaryConv2d);

/// torch::nn::Linear on signs, over the last dimension. Scales: none, mean and output.
class ULP_API BinaryLinearImpl : public torch::nn::LinearImpl {
 public:
  explicit BinaryLinearImpl(const torch::nn::LinearOptions& options, const BinaryLayerOptions& binary = {},
                            bool signs = false);
  at::Tensor forward(const at::Tensor& x);
  const BinaryLayerOptions& binary() const { return binary_; }  ///< what it was made with

 private:
  BinaryLayerOptions binary_;
  bool signs_;
  std::vector<at::Tensor> scales_;
};
TORCH_MODULE(BinaryLinear);

/// sign(x), with sign(0) = +1.
class ULP_API SignImpl : public torch::nn::Module {
 public:
  explicit SignImpl(SignGradient gradient = SignGradient::clipped) : gradient_(gradient) {}
  at::Tensor forward(const at::Tensor& x);

 private:
  SignGradient gradient_;
};
TORCH_MODULE(Sign);

/// sign(x + shift[c]) with a learned shift for each channel (dimension 1), 0 at first: ReActNet (Liu et al. 2020),
/// which writes it as sign(x - a).
class ULP_API RSignImpl : public torch::nn::Module {
 public:
  explicit RSignImpl(int64_t channels, SignGradient gradient = SignGradient::approx);
  at::Tensor forward(const at::Tensor& x);
  at::Tensor shift;  ///< [channels]

 private:
  SignGradient gradient_;
};
TORCH_MODULE(RSign);

/// prelu(x + before[c]) + after[c] with learned shifts, 0 at first, and slopes, 0.25 at first, for each channel
/// (dimension 1): ReActNet.
class ULP_API RPReLUImpl : public torch::nn::Module {
 public:
  explicit RPReLUImpl(int64_t channels);
  at::Tensor forward(const at::Tensor& x);
  at::Tensor before, slope, after;  ///< [channels] each
};
TORCH_MODULE(RPReLU);

}  // namespace ulp::quant
