// Cutting a graph into pieces that run one after the other, each as a whole in the engine or in LibTorch.
#pragma once

#include <unordered_set>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// Nodes that run in one place, in the order of the graph, and what passes between them and the others.
struct Cut {
  bool foreign = false;  ///< runs in LibTorch
  std::vector<const graph::Node*> nodes;
  std::vector<const graph::Value*> inputs, results;
};

/// Pieces in order of execution: `foreign` nodes and modules in LibTorch, all others in the engine. A piece is as large
/// as the order of execution allows. What is computed from parameters alone, and the steps between numbers and codes
/// (ulp::quantize, ulp::dequantize), is copied into each piece that reads it, so that numbers pass between pieces. Nodes
/// with effects, and those that read what the graph itself writes, keep their order; the latter run in LibTorch.
std::vector<Cut> partition(const graph::Graph& graph, const std::unordered_set<const graph::Node*>& foreign);

/// Values of the graph's result, in order.
std::vector<const graph::Value*> result_values(const graph::Graph& graph);

}  // namespace ulp::lowering
