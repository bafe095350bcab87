#include "ulp/distill/place.h"

#include <algorithm>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/distill/attention_place.h"

namespace ulp::distill {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kWhere = "distill.find_place";

/// "layer2:input" as a name and what is asked of it.
struct Parts {
  std::string name, part;
};

Parts split(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos) return {place, ""};
  return {place.substr(0, colon), place.substr(colon + 1)};
}

void collect(const Argument& argument, std::vector<Value*>& found) {
  if (argument.is_value()) found.push_back(argument.value);
  for (const Argument& item : argument.items) collect(item, found);
}

Value* find_output(const Graph& graph, const std::string& part) {
  std::vector<Value*> results;
  collect(graph.output_node()->args.at(0), results);
  size_t index = 0;
  if (!part.empty()) {
    const bool digits =
        part.size() < 6 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) fail(kWhere, "expected output:NUMBER, got 'output:", part, "'");
    index = std::stoul(part);
  }
  if (index >= results.size())
    fail(kWhere, "expected one of the ", results.size(), " tensors that the model returns, got number ",
         index);
  return results[index];
}

bool inside(const Node& node, const std::string& module) {
  return node.scope == module || (node.scope.starts_with(module) && node.scope[module.size()] == '.');
}

bool computes(const Node& node) {
  return (node.kind() == Node::Kind::call || node.kind() == Node::Kind::module) && !node.outputs().empty();
}

/// The calls of a module, in order.
std::vector<Node*> calls_of(const Graph& graph, const std::string& module) {
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (computes(*node) && inside(*node, module)) calls.push_back(node.get());
  }
  return calls;
}

/// What the calls of a module make and others read, in order. What is made of attributes alone is none of it.
std::vector<Value*> results_of(const Graph& graph, const std::vector<Node*>& calls) {
  std::vector<Value*> results;
  for (const Node* call : calls) {
    for (const auto& value : call->outputs()) {
      const bool read = std::ranges::any_of(graph.users(value.get()), [&](const Node* user) {
        return std::ranges::find(calls, user) == calls.end();
      });
      if (read) results.push_back(value.get());
    }
  }
  return results;
}

/// The first value that a module reads and does not make; of attributes only where there is no other.
Value* input_of(const std::vector<Node*>& calls) {
  for (const Node* call : calls) {
    for (Value* value : call->reads()) {
      const Node* producer = value->producer;
      if (producer->kind() == Node::Kind::attribute) continue;
      if (std::ranges::find(calls, producer) == calls.end()) return value;
    }
  }
  return nullptr;
}

Node* find_node(const Graph& graph, const std::string& name) {
  for (const auto& node : graph.nodes()) {
    if (node->name() == name && !node->outputs().empty()) return node.get();
    for (const auto& value : node->outputs()) {
      if (value->name == name) return node.get();
    }
  }
  return nullptr;
}

Value* value_of(const Node& node, const std::string& name) {
  for (const auto& value : node.outputs()) {
    if (value->name == name) return value.get();
  }
  return node.output();
}

/// Module paths of the graph that are no deeper than those of one part, for messages.
std::string known_modules(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) {
    if (!computes(*node) || node->scope.empty()) continue;
    const std::string top = node->scope.substr(0, node->scope.find('.'));
    if (std::ranges::find(names, top) == names.end()) names.push_back(top);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Value* sole_result(const Graph& graph, const std::vector<Node*>& calls, const std::string& name) {
  const std::vector<Value*> results = results_of(graph, calls);
  if (results.size() == 1) return results[0];
  std::string text;
  for (const Value* value : results) text += (text.empty() ? "" : ", ") + value->name;
  if (results.empty()) fail(kWhere, "expected a module whose result is read, got '", name, "'");
  fail(kWhere, "expected a place with one value, got '", name, "', of which others read ", text,
       ": name one of them, or the input of the module that follows ('NAME:input')");
}

}  // namespace

Value* find_place(Graph& graph, const std::string& place) {
  const Parts parts = split(place);
  if (parts.name.empty() && !place.empty()) fail(kWhere, "expected a name before ':', got '", place, "'");
  if (place.empty() || parts.name == "output") {
    if (graph.output_node() == nullptr) fail(kWhere, "expected a graph with an output, got none");
    return find_output(graph, parts.part);
  }
  const std::vector<Node*> calls = calls_of(graph, parts.name);
  Node* node = calls.empty() ? find_node(graph, parts.name) : nullptr;
  if (calls.empty() && node == nullptr) {
    fail(kWhere, "expected a module, node or value of the model, got '", parts.name,
         "'; its outermost modules are ", known_modules(graph));
  }
  const std::vector<Node*> own = node == nullptr ? calls : std::vector<Node*>{node};
  if (parts.part.empty())
    return node == nullptr ? sole_result(graph, calls, parts.name) : value_of(*node, parts.name);
  if (parts.part == "input") {
    if (Value* input = input_of(own)) return input;
    fail(kWhere, "expected a module that reads a value, got '", parts.name, "'");
  }
  const auto role = from_word<AttentionRole>(parts.part);
  if (!role) {
    constexpr auto kRoles = words_of<AttentionRole>();
    fail(kWhere, "expected 'input', ", one_of(kRoles), " behind ':', got '", parts.part, "'");
  }
  return find_attention(graph, own, *role, parts.name);
}

}  // namespace ulp::distill
