// Makes layers of a graph binary, for training. Internal.
#pragma once

#include <memory>

#include "ulp/graph/graph.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/binary/binary_options.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

struct QatState;

/// Writes the binary form of every layer that options and recipe choose into a canonical graph: the layer reads
/// ActivationSigns and WeightSigns, its scale and bias come behind. Learned scales become parameters beside the
/// layer's. The report says which layers became binary, and which not and why. Throws ulp::Error where there is none.
graph::PassReport insert_binary(graph::Graph& graph, const Recipe& recipe, const BinaryOptions& options,
                                const std::shared_ptr<const QatState>& state);

}  // namespace ulp::quant
