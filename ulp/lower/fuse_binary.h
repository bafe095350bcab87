// Binary layers of a graph, written as the engine runs them.
#pragma once

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::lowering {

/// Convolutions and linear layers of signs (ulp::binarize) with weights of +1 and -1 become the ops of binary_graph.h:
/// with integer thresholds where nothing but a chain of channels that ends in signs reads the result, else with a scale
/// and a bias, into which products, sums and batch norms behind the layer are folded. One product and one sum are taken
/// as they are; what comes behind them is folded in double and rounded once. Chains of channels in front of other signs
/// become thresholds of real numbers. Signs that other ops read are spelled out as numbers. The report says what stays
/// a float layer, and why.
ULP_API graph::PassReport fuse_binary(graph::Graph& graph);

}  // namespace ulp::lowering
