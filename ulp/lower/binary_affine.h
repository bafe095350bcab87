// What stands behind a binary layer and can be part of its scale and bias; internal to fuse_binary().
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// sum * scale + bias.
struct BinaryAffine {
  at::Tensor scale;                ///< f32 [O] or [O, h, w]
  at::Tensor bias;                 ///< f32 [O]; undefined without one
  graph::Value* result = nullptr;  ///< of the last op that is part of it
  int folded = 0;                  ///< ops behind the first product and the first sum: their rounding is gone
};

/// Products with and sums of constants, and batch norms, one after the other behind `sums`, as far as nobody else reads
/// what is between. `dim`: the channels' dimension.
BinaryAffine fold_affine(const graph::Graph& graph, graph::Value* sums, int64_t dim);

}  // namespace ulp::lowering
