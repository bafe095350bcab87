// SparseGPT: prunes a layer's weights one column after the other and corrects those that are still to come,
// so that the layer's results change least.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/select.h"

namespace ulp::prune {

/// How prune_sparsegpt() works.
struct SparseGptOptions {
  double sparsity =
      0.5;  ///< in [0, 1]: of each block of columns, and so of each layer; not of the pattern n_m
  Pattern pattern = {};  ///< free or n_m
  int64_t block = 128;   ///< columns whose corrections reach later ones together; a multiple of m
  double damp = 0.01;    ///< share of the mean of H's diagonal that is added to it, > 0
};

/// A layer after pruning.
struct SparseGptResult {
  at::Tensor weight;  ///< of the type and shape of the weight; zero where it is pruned
  at::Tensor keep;    ///< bool
};

/// One layer: Frantar and Alistarh 2023, "SparseGPT". `weight`: [rows, ...], its other dimensions being the
/// columns; `products`: [columns, columns], the sum of x x' over the layer's inputs, whose factor does not
/// matter. In double: H = products, where a column that no input reaches gets H_jj = 1 and its weights are
/// zero; H_jj += damp * mean diagonal; U = the upper Cholesky factor of the inverse of H; in each block of
/// columns the lowest w^2 / U_jj^2 are pruned, and (w - q) / U_jj * U_j,k is taken from each later column k.
/// Up to the last column of a block, int(sparsity * elements) are pruned; among equal scores the first in
/// row-major order. The weights that were pruned before (`keep`, may be undefined) are zero, are pruned first
/// and count. Throws ulp::Error for bad options and shapes, and where H is not positive definite.
ULP_API SparseGptResult sparsegpt(const at::Tensor& weight, const at::Tensor& products,
                                  const SparseGptOptions& options, const at::Tensor& keep = {});

/// Prunes these parameters of a module in their order, each with the inputs that it has after those before it
/// are pruned: weights are updated in place and masks set. `inputs`: calibration data, lists as
/// GraphModule::forward takes. Parameters: weights of linear layers and convolutions without groups. Throws
/// ulp::Error for bad options and names, and naming the parameter for what sparsegpt() throws; the module is
/// then as it was.
ULP_API void prune_sparsegpt(graph::GraphModule& module, const std::vector<std::string>& parameters,
                             const std::vector<std::vector<at::Tensor>>& inputs,
                             const SparseGptOptions& options = {});

}  // namespace ulp::prune
