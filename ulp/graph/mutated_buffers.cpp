#include "ulp/graph/mutated_buffers.h"

#include <ATen/core/function_schema.h>

#include <algorithm>

namespace ulp::graph {

namespace {

bool is_attribute(const Value& value) {
  return value.producer->kind() == Node::Kind::attribute;
}

/// What a value that is written is a view of: views read first what they look at.
const Value* written_through(const Value* value) {
  while (value->producer->kind() == Node::Kind::call) {
    const std::vector<Value*> reads = value->producer->reads();
    if (reads.empty()) break;
    value = reads.front();
  }
  return value;
}

/// The attributes that a call writes.
void gather_written(const Node& node, std::unordered_set<const Value*>& written) {
  const auto& arguments = node.schema().arguments();
  for (size_t i = 0; i < std::min(arguments.size(), node.args.size()); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || !node.args[i].is_value()) continue;
    const Value* value = written_through(node.args[i].value);
    if (is_attribute(*value)) written.insert(value);
  }
}

}  // namespace

WrittenState::WrittenState(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && node->schema().is_mutable()) gather_written(*node, state_);
  }
  if (state_.empty()) return;
  for (const auto& node : graph.nodes()) {
    if (!touches(*node)) continue;
    const bool of_attributes = std::ranges::all_of(
        node->reads(), [&](const Value* read) { return is_attribute(*read) || state_.contains(read); });
    if (!of_attributes) continue;
    for (const auto& made : node->outputs()) state_.insert(made.get());
  }
}

bool WrittenState::touches(const Node& node) const {
  if (state_.empty() || node.kind() != Node::Kind::call) return false;
  return std::ranges::any_of(node.reads(), [&](const Value* read) { return state_.contains(read); });
}

}  // namespace ulp::graph
