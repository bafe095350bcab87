// Puts codes of weights into a graph. Internal.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "ulp/graph/graph.h"
#include "ulp/quant/weights/quantized_weight.h"

namespace ulp::quant {

/// Why the weight of a layer cannot become codes; empty: it can.
std::string coding_obstacle(const graph::Graph& graph, const graph::Node& layer);

/// The model's name of a layer's weight, which store_transposes may have turned.
std::string weight_name(const graph::Node& layer);

/// Rewrites layers one by one, with one node for all that share a weight.
class WeightCoder {
 public:
  /// The codes of the weight of that name, f32 [out, in].
  using MakeCodes = std::function<StoredQuantizedWeight(const std::string& name, const at::Tensor& values)>;
  explicit WeightCoder(MakeCodes make) : make_(std::move(make)) {}

  /// The layer reads codes from now on.
  void rewrite(graph::Graph& graph, graph::Node* layer);

 private:
  graph::Value* decoded(graph::Graph& graph, graph::Node* layer);

  MakeCodes make_;
  std::unordered_map<const graph::Value*, graph::Value*> decoded_;
};

}  // namespace ulp::quant
