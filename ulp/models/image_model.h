// The base of the reference networks: images in, logits out, through one virtual forward().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "ulp/base/export.h"

namespace ulp::models {

/// A network over images of shape (N, C, H, W). Parameters carry torchvision's names where torchvision has
/// the network; each make_ function draws them from the default generator, so torch::manual_seed fixes them.
class ULP_API ImageModel : public torch::nn::Module {
 public:
  ~ImageModel() override;
  virtual at::Tensor forward(at::Tensor images) = 0;
};

/// Lays the weights of convolutions out in NHWC order, which LibTorch's CPU kernels like best. Optimizers
/// made before keep working: the parameters stay the same objects.
ULP_API void to_channels_last(torch::nn::Module& model);

}  // namespace ulp::models
