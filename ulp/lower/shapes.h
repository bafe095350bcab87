// The sizes of every value, in terms of the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// Fills in what passes left without metadata by running the graph (in eval mode, without gradients) on zeros
/// of the input's sizes at two batch sizes. Throws ulp::Error when an input itself has no known sizes.
void complete_shapes(graph::Graph& graph);

/// Zeros of the inputs' sizes at a batch. Throws ulp::Error when an input has no known sizes.
std::vector<at::Tensor> zeros_of(const graph::Graph& graph, int64_t batch);

/// What these values hold, which depend on no input.
std::vector<at::Tensor> evaluate_fixed(const graph::Graph& graph, const std::vector<graph::Value*>& values);

/// Gives the inputs the examples' sizes, their batch free; forgets all others unless nothing changed. Throws ulp::Error for
/// another number of examples, and for one without its batch dimension.
void set_input_shapes(graph::Graph& graph, const std::vector<at::Tensor>& examples);

}  // namespace ulp::lowering
