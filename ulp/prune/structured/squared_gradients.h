// The diagonal of the Hessian, by squared gradients: for Criterion::hessian.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::prune {

/// E[g^2] of each element of the parameters that are trained, by their names in the graph.
using SquaredGradients = std::map<std::string, at::Tensor>;

/// The mean over i = 0 ... count - 1 of the squared gradients of loss(module, i). Of a negative log-likelihood of single
/// samples this is the diagonal of the empirical Fisher matrix, which stands for that of the Hessian (LeCun, Denker and
/// Solla 1990, "Optimal Brain Damage", whose saliency is half of w^2 h; Theis et al. 2018, "Faster gaze prediction"): let loss(i) be that of
/// one sample. Where it is the mean over a batch of B, gradients with mean zero come out B times smaller, in all parameters alike, which
/// leaves the order of units. Parameters on which no loss depends get zeros. Weights, .grad, mode and buffers are not
/// changed but by what the loss does itself. Throws ulp::Error for a count below 1, without a loss, for one that is no scalar that depends on the
/// parameters, and for a gradient that is not finite.
ULP_API SquaredGradients
squared_gradients(graph::GraphModule& module, int64_t count,
                  const std::function<at::Tensor(graph::GraphModule& module, int64_t i)>& loss);

}  // namespace ulp::prune
