// Methods that scale channels of the float network, which stays what it is but for rounding, so that less is
// lost when it is quantized: SmoothQuant and cross-layer equalization.
//
//   auto smooth = ulp::quant::smooth_quant(captured, [&](graph::GraphModule& model) {
//     for (const auto& batch : calibration) model.forward({batch});
//   });
//
// The results are float models in the form of inference (batch norms folded). They are for any way of
// quantizing. quantize() with a recipe that names the methods calls scale_channels().
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

/// SmoothQuant (Xiao et al. 2022, arXiv 2211.10438): linear layers that read one value x read x / s, and
/// their columns are times s, with s_j = max|X_j|^alpha / max|W_j|^(1 - alpha) over the calibration data and
/// over all these layers; s_j is 1 where a maximum is 0, and where it would leave [2^-64, 2^64]. 1 / s goes
/// into what makes x: weight and bias of a layer_norm, the weight of an rms_norm, the stored vector of a
/// product, or the rows of a linear layer, through relu and products. Layers where nothing can take it, whose
/// input others read, too, or whose weight several layers read are left as they are, and the report says so
/// by name. alpha is recipe.methods.smoothquant_alpha; searched, it is that of the least ||Q(X / s) Q(W s)^T
/// - X W^T||^2 over up to 2048 rows, by the recipe's schemes with min-max ranges for x, or none at all. Only
/// layers that the recipe quantizes are scaled. Throws ulp::Error naming the layer for no data, and for
/// inputs that are NaN or infinite. `data` is called once. The captured model stays as it is.
ULP_API std::shared_ptr<graph::GraphModule> smooth_quant(const std::shared_ptr<graph::GraphModule>& captured,
                                                         const Calibrate& data,
                                                         const Recipe& recipe = Recipe::x86_int8(),
                                                         graph::PassReport* report = nullptr);

/// Cross-layer equalization (Nagel et al. 2019, arXiv 1906.04721, section 4.1): where a convolution or linear
/// layer reads the result of another one, alone and through nothing but relu, leaky_relu, poolings and
/// flatten, each channel between them is divided by s = sqrt(r1 / r2), with r1 the largest weight of the
/// channel's row in the first layer and r2 that of its column in the second; s is 1 where one is 2^-24 of its
/// layer's largest or less (a dead channel, whose bias would become the range of the activations). Pairs are
/// visited until no s changes any more. Depthwise and grouped convolutions are layers as others. A relu6
/// between them keeps a pair from it, unless `replace_relu6`: then it becomes a relu, and the float network
/// another one where it clamped at 6 (the report names it). High biases are not absorbed. Needs no data.
/// Throws ulp::Error for weights that are not finite or would not be. The captured model stays as it is.
ULP_API std::shared_ptr<graph::GraphModule> equalize_layers(
    const std::shared_ptr<graph::GraphModule>& captured, bool replace_relu6 = false,
    graph::PassReport* report = nullptr);

/// Both, and before them rotate_residual(), as recipe.methods names them; the captured model where it names
/// none of them. `data` is called for smoothquant alone.
ULP_API std::shared_ptr<graph::GraphModule> scale_channels(
    const std::shared_ptr<graph::GraphModule>& captured, const Recipe& recipe, const Calibrate& data,
    graph::PassReport* report = nullptr);

}  // namespace ulp::quant
