// The rows that a layer's weight is multiplied by. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ulp/base/parallel.h"
#include "ulp/graph/graph.h"

namespace ulp::quant {

/// How many groups the layer's weight has; 1 of a linear layer.
int64_t groups_of(const graph::Node& layer);

/// The weight as [groups, outputs of a group, columns]; `like` is any tensor of its shape.
at::Tensor as_matrices(const graph::Node& layer, const at::Tensor& like);

/// Calls `use` with the input's rows as [groups, rows, columns], f32, in parts that stay small: of a
/// convolution the windows that its weight is multiplied by, padding included. Two inputs of one shape are
/// cut alike.
void for_rows(const graph::Node& layer, const at::Tensor& weight, const at::Tensor& first,
              const at::Tensor& second,
              FunctionRef<void(const at::Tensor& first, const at::Tensor& second)> use);

}  // namespace ulp::quant
