// What a graph's JSON says of its tensors: kinds, gradients, layouts. Their numbers lie elsewhere. Internal to the room.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "ulp/graph/graph.h"

namespace ulp::io {

nlohmann::json attribute_to_json(const std::string& name, const graph::Attribute& attribute);

/// Puts tensors into a graph as their JSON wants them. Names of one tensor with the same layout share memory, and are one
/// tensor again where they agree on the gradient. The given tensors stay as they are.
class AttributeReader {
 public:
  explicit AttributeReader(const std::map<std::string, at::Tensor>& tensors) : tensors_(tensors) {}
  /// Throws ulp::Error or nlohmann::json::exception for a name that has no tensor, is there already or is nested too
  /// deeply, for strides that are not dense, and for gradients of whole numbers.
  void add_to(graph::Graph& graph, const nlohmann::json& json);

 private:
  using Strides = std::optional<std::vector<int64_t>>;  ///< none: those of the stored tensor
  /// One memory, with and without a gradient.
  struct Shared {
    at::Tensor plain, learning;
  };

  const std::map<std::string, at::Tensor>& tensors_;
  std::map<std::pair<const void*, Strides>, Shared> shared_;
  std::unordered_set<std::string> names_;
};

}  // namespace ulp::io
