// Divides what layers read by scales of its channels, where it is made if the graph lets it. Internal.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/quant/weights/quantized_weight.h"

namespace ulp::quant {

/// The layers, which read one value, read value / scale from now on (their weights are times the scale
/// already). 1 / scale goes into what makes the value: the weight and bias of layer_norm, rms_norm or a
/// linear layer, or the stored vector of a product, through relu and products, where nothing else reads any
/// value on the way. A linear layer in `codes`, by its weight's name, gets other scales of its rows there.
/// Returns the label of what took 1 / scale, or nothing where a product before the layers did.
std::string divide_input(graph::Graph& graph, const std::vector<graph::Node*>& layers,
                         const at::Tensor& scale, std::map<std::string, StoredQuantizedWeight>& codes);

/// The same where nothing else can take 1 / scale: then nothing changes, and nothing is returned. Weights of
/// the layers stay as they are.
std::string fold_into_maker(graph::Graph& graph, const std::vector<graph::Node*>& layers,
                            const at::Tensor& scale);

}  // namespace ulp::quant
