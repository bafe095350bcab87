// The linear layers of a graph, one for each stored weight. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::lora {

/// Calls of aten::linear that read one stored matrix, or its transpose.
struct LinearLayer {
  std::string path;    ///< of the module: the weight's name without ".weight"
  std::string weight;  ///< its name
  std::vector<graph::Node*> nodes;
  int64_t out = 0, in = 0;
  bool transposed = false;                    ///< it is stored as [in, out]
  const graph::Node* other_reader = nullptr;  ///< one that reads the weight otherwise, as an embedding does
};

/// In order of execution, by the last call of each; after canonicalize() and products_as_linear().
std::vector<LinearLayer> linear_layers(const graph::Graph& graph);

}  // namespace ulp::lora
