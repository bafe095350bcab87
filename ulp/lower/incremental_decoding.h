// Plans whose runs continue each other along a free dimension, as those of networks that write texts token by
// token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/graph/graph.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// A table without the dimensions before `dim`, which have one element: the position comes first.
at::Tensor rows_by_position(const at::Tensor& table, int64_t dim);

/// Marks the tables that a network reads by position (ulp::from_position): values without a sample that have
/// one dimension of this size and meet samples. Throws ulp::Error where the graph has no such free dimension.
void mark_positions(graph::Graph& graph, const std::string& dimension);

/// Lets the causal attention of a plan keep its keys and values. Throws ulp::Error naming the step where
/// attention along the dimension is not causal, and the constant that follows it in another way than by
/// position.
void keep_keys(runtime::Plan& plan, const std::string& dimension);

/// Runs the plan on random inputs, several positions at once and one by one. Throws ulp::Error where the
/// results differ by more than rounding: something looks forward, or counts positions.
void check_continued(const runtime::Plan& plan);

}  // namespace ulp::lowering
