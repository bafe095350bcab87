// The structure of a graph as JSON: nodes, arguments, sizes; tensors are named, their numbers lie elsewhere. Internal to
// the room.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "ulp/graph/graph.h"

namespace ulp::io {

/// Throws ulp::Error naming the node for what has no JSON: modules in the graph, tensors and objects as literals.
nlohmann::json graph_to_json(const graph::Graph& graph);

/// The graph of such a JSON with these tensors, verified. Throws ulp::Error or nlohmann::json::exception for a JSON that is
/// none, for operators that a file may not call or with other arguments than theirs, and for tensors that are missing.
/// The tensors stay as they are.
std::shared_ptr<graph::Graph> graph_from_json(const nlohmann::json& json,
                                              const std::map<std::string, at::Tensor>& tensors);

}  // namespace ulp::io
