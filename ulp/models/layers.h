// Pieces that the reference networks share; not installed.
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// torch::nn::Conv2d with the guard of conv_guard.h; a Sequential calls this forward.
class Conv2dImpl : public torch::nn::Conv2dImpl {
 public:
  using torch::nn::Conv2dImpl::Conv2dImpl;
  at::Tensor forward(const at::Tensor& input);
};
TORCH_MODULE(Conv2d);

/// A convolution without bias, padded to keep the size at stride 1 (odd kernels).
Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1);

/// Convolution without bias, batch norm (eps 0.001) and relu, under the names conv and bn: what GoogLeNet and
/// Inception v3 are made of. Padding keeps the size at stride 1 (odd kernels) unless given.
class BasicConv2dImpl : public torch::nn::Module {
 public:
  using Size = torch::ExpandingArray<2>;
  BasicConv2dImpl(int64_t in, int64_t out, Size kernel, int64_t stride = 1);
  BasicConv2dImpl(int64_t in, int64_t out, Size kernel, int64_t stride, Size padding);
  at::Tensor forward(const at::Tensor& x);

 private:
  Conv2d conv{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
};
TORCH_MODULE(BasicConv2d);

/// The start of GoogLeNet and Inception v3: convolutions and linear layers normal with this deviation, batch
/// norm 1 and 0. (torchvision cuts the normal distribution at 2, twenty and more deviations out.)
void init_normal(torch::nn::Module& model, double deviation);

/// torchvision's start: convolutions normal with variance 2 / fan_out, their bias 0, batch norm 1 and 0.
void init_like_torchvision(torch::nn::Module& model);

/// Throws Error naming the option unless value >= least.
void check_option(const char* model, const char* option, int64_t value, int64_t least = 1);
/// Throws Error unless the input is (N, channels, H, W).
void check_images(const char* model, const at::Tensor& images, int64_t channels);

}  // namespace ulp::models
