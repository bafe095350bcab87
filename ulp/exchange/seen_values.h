// What the values of a graph are in a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// A call that runs in eval mode.
bool runs_in_eval(const graph::Node& node);

/// Every value that such a call makes, in order.
std::vector<graph::Value*> computed_values(const graph::Graph& graph);

/// What these are in a run on `inputs`.
std::vector<at::Tensor> seen_values(const graph::Graph& graph, const std::vector<graph::Value*>& values,
                                    const std::vector<at::Tensor>& inputs);

}  // namespace ulp::exchange
