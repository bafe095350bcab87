// Arguments of a graph's nodes as JSON. Internal to the room.
#pragma once

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "ulp/graph/graph.h"

namespace c10 {
struct Argument;
}

namespace ulp::io {

/// What an argument may speak of: the values before it, by name, and the graph's free dimensions.
struct Known {
  std::unordered_map<std::string, graph::Value*> values;
  size_t free_dimensions = 0;
};

/// Throws ulp::Error naming the node for tensors, objects and complex numbers as literals.
nlohmann::json argument_to_json(const graph::Argument& argument, const graph::Node& node);

/// Throws ulp::Error or nlohmann::json::exception for a JSON that is no argument, for a value that is not known, and for
/// lists far deeper in each other than any operator takes.
graph::Argument argument_of(const nlohmann::json& json, const Known& known, int depth = 0);

/// An error unless the operator can take the argument: LibTorch finds out in the middle of a run, or not at all.
void check_argument(const c10::Argument& wanted, const graph::Argument& given, const std::string& node);

}  // namespace ulp::io
