// Writes one layer of a graph in its binary form. Internal.
#pragma once

#include <memory>

#include "ulp/graph/graph.h"
#include "ulp/quant/binary/binary_options.h"

namespace ulp::quant {

struct QatState;

/// Puts the binary form in the place of a layer (aten::conv1d, conv2d or linear of a stored weight): signs of its input
/// and weight as modules, scale and bias behind. The signs are those in front of a relu (and a pooling or reshape behind
/// it), whose results have one sign only. Learned scales become parameters beside the weight.
void write_binary_form(graph::Graph& graph, graph::Node& layer, const BinaryLayerOptions& options,
                       const std::shared_ptr<const QatState>& state);

}  // namespace ulp::quant
