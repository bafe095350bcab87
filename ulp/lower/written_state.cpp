#include "ulp/lower/written_state.h"

#include <ATen/core/function_schema.h>

#include <algorithm>

namespace ulp::lowering {

using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// The attributes behind a value that is written: itself, or what it is a view of.
void gather_attributes(const Value& value, std::unordered_set<std::string>& names) {
  const Node& producer = *value.producer;
  if (producer.kind() == Node::Kind::attribute) {
    names.insert(producer.target());
    return;
  }
  for (const Value* read : producer.reads()) gather_attributes(*read, names);
}

}  // namespace

WrittenState::WrittenState(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call || !node->schema().is_mutable()) continue;
    const auto& arguments = node->schema().arguments();
    for (size_t i = 0; i < arguments.size() && i < node->args.size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite() && node->args[i].is_value()) {
        gather_attributes(*node->args[i].value, names_);
      }
    }
  }
}

bool WrittenState::is_state(const Value& value) const {
  const Node& producer = *value.producer;
  if (producer.kind() == Node::Kind::attribute) return names_.contains(producer.target());
  return producer.kind() == Node::Kind::call && touches(producer) &&
         std::ranges::all_of(producer.reads(), [&](const Value* read) {
           return read->producer->kind() == Node::Kind::attribute || is_state(*read);
         });
}

bool WrittenState::touches(const Node& node) const {
  if (names_.empty() || node.kind() != Node::Kind::call) return false;
  return std::ranges::any_of(node.reads(), [&](const Value* read) { return is_state(*read); });
}

}  // namespace ulp::lowering
