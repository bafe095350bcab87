// What a graph computes of its stored tensors alone, stored: masks, tables of positions, weights that
// forward makes.
#pragma once

#include <functional>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Stores those of the values that follow stored tensors alone; `tensors` is what each of them holds in eval
/// mode. Weights in codes stay. `sizes_fixed`: the sizes of the inputs are numbers, too.
void store_fixed(graph::Graph& graph, const std::vector<graph::Value*>& values,
                 const std::vector<at::Tensor>& tensors, bool sizes_fixed);

/// Stores what these calls make of stored tensors alone; other calls stay.
void store_fixed(graph::Graph& graph, const std::function<bool(const graph::Node&)>& which);

/// Stores all of them in a graph whose batch may be free.
void store_fixed(graph::Graph& graph);

}  // namespace ulp::exchange
