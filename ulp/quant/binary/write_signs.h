// The form of a binary graph for inference. Internal.
#pragma once

#include "ulp/graph/graph.h"

namespace ulp::quant {

/// Puts ulp::binarize in the place of modules that make signs of activations, and stored weights in the place of
/// latent ones: bits under ulp::unpack_signs, ternary weights as they are. What is computed of latent weights alone
/// becomes buffers.
void write_signs(graph::Graph& graph);

/// The attributes whose signs the graph takes.
std::vector<std::string> latent_attributes(const graph::Graph& graph);

}  // namespace ulp::quant
