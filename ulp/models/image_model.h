// The base of the reference networks: images in, logits out, through one virtual forward().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

#include "ulp/base/export.h"

namespace ulp::models {

/// A network over images of shape (N, C, H, W). Parameters carry torchvision's names where torchvision has
/// the network; each make_ function draws them from the default generator, so torch::manual_seed fixes them.
class ULP_API ImageModel : public torch::nn::Module {
 public:
  ~ImageModel() override;
  virtual at::Tensor forward(at::Tensor images) = 0;
};

/// The results of a network with auxiliary classifiers in training.
struct AuxLogits {
  at::Tensor logits;
  std::vector<at::Tensor> auxiliary;  ///< (N, num_classes) each, from the input's side to the output's
};

/// A network with auxiliary classifiers, which only training uses: the loss is that of the logits plus a
/// share of each auxiliary one's. forward() never runs them, so that one graph serves training and inference.
class ULP_API AuxImageModel : public ImageModel {
 public:
  /// forward() and the auxiliary classifiers, in either mode. Throws Error if it was made without them.
  virtual AuxLogits forward_with_aux(at::Tensor images) = 0;
};

/// Lays the weights of convolutions out in NHWC order, which LibTorch's CPU kernels like best. Optimizers
/// made before keep working: the parameters stay the same objects.
ULP_API void to_channels_last(torch::nn::Module& model);

}  // namespace ulp::models
