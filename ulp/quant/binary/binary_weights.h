// The weights of binary layers: latent ones in f32 while they are trained, one bit each afterwards.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::quant {

/// The parameters whose signs a model computes with, by their names in named_parameters(): weights of binary layers
/// (layers.h), of captured models with such layers, and of models from prepare_qat(). Weight decay would only make
/// them change their signs more often: give them none. Ternary weights are not among them.
ULP_API std::vector<std::string> latent_weights(const torch::nn::Module& model);

/// Brings the latent weights into [-1, 1], to be called after every step of the optimizer: beyond, the gradient of the
/// sign is 0, and they would never come back (Courbariaux et al. 2016).
ULP_API void clip_latent_weights(torch::nn::Module& model);

/// The model for inference, in eval mode: latent weights become bits under ulp::unpack_signs, "<name>.signs", and what
/// is computed of latent weights (scales) is computed once. Results stay the same, bit for bit.
ULP_API std::shared_ptr<graph::GraphModule> pack_binary_weights(
    const std::shared_ptr<graph::GraphModule>& captured);

}  // namespace ulp::quant
