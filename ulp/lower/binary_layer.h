// A binary layer of a graph as fuse_binary() finds it; internal to that pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lowering {

/// A convolution or linear layer that multiplies signs with signs.
struct BinaryLayer {
  graph::Node* node = nullptr;
  graph::Node* pad = nullptr;                      ///< +1 around the image; null without it
  graph::Node* binarize = nullptr;                 ///< where the signs come from
  std::vector<int64_t> stride, padding, dilation;  ///< of a convolution
  bool padding_one = false;
  at::Tensor weight;
  bool is_linear() const { return node->is("aten::linear"); }
  int64_t channel_dim() const;
  /// Products in a sum.
  int64_t length() const { return weight.numel() / weight.size(0); }
  /// True where every sum has all of its products, so that it is even or odd as their number is.
  bool is_whole() const;
};

/// True for a layer that reads signs, or a weight of signs: one that someone meant to be binary.
bool looks_binary(const graph::Graph& graph, const graph::Node& node);
/// Empty where the layer is binary, else what stands in the way.
std::string read_binary_layer(const graph::Graph& graph, graph::Node& node, BinaryLayer& layer);

/// Stored weights under ulp::unpack_signs and ulp::binarize become tensors of +1 and -1 under the weight's name.
void unpack_weights(graph::Graph& graph);

}  // namespace ulp::lowering
