#include "ulp/distributed/subgraphs.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/base/error.h"

namespace ulp::distributed {

using graph::Node;
using graph::Value;

namespace {

void add_once(std::vector<const Value*>& values, const Value* value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

}  // namespace

void check_can_be_cut(const char* where, const graph::Graph& graph) {
  if (!graph.free.empty())
    fail(where, "expected a model captured without free dimensions, got '", graph.free[0].name, "'");
  const auto& result = graph.output_node()->args.at(0);
  if (!result.is_value() || is_attribute(result.value) || is_view_of_attribute(*result.value->producer))
    fail(where, "expected a model whose result is one tensor that it computes, got another one");
}

bool is_attribute(const Value* value) {
  return value->producer->kind() == Node::Kind::attribute;
}

at::Tensor trained_parameter(const graph::Graph& graph, const Value* value) {
  const at::Tensor tensor = graph.attribute_tensor(value);
  return tensor.defined() && tensor.requires_grad() ? tensor : at::Tensor();
}

bool is_view_of_attribute(const Node& node) {
  if (node.kind() != Node::Kind::call || node.has_effect()) return false;
  const auto& returns = node.schema().returns();
  const bool views =
      !returns.empty() && returns[0].alias_info() != nullptr && !returns[0].alias_info()->isWrite();
  return views && std::ranges::all_of(node.reads(), [](const Value* value) {
           return is_attribute(value) || is_view_of_attribute(*value->producer);
         });
}

void add_with_views(std::vector<const Node*>& nodes, const Node* node) {
  if (std::ranges::find(nodes, node) != nodes.end()) return;
  for (const Value* value : node->reads())
    if (is_view_of_attribute(*value->producer)) add_with_views(nodes, value->producer);
  nodes.push_back(node);
}

Border border_of(const graph::Graph& graph, const std::vector<const Node*>& nodes) {
  const std::unordered_set<const Node*> own(nodes.begin(), nodes.end());
  Border border;
  for (const Node* node : nodes) {
    for (const Value* value : node->reads())
      if (!is_attribute(value) && !own.contains(value->producer)) add_once(border.inputs, value);
    if (is_view_of_attribute(*node)) continue;
    for (const auto& output : node->outputs()) {
      const auto users = graph.users(output.get());
      if (std::ranges::any_of(users, [&](const Node* user) { return !own.contains(user); }))
        border.results.push_back(output.get());
    }
  }
  // Sizes that follow the batch need an input that has it.
  const auto all = graph.inputs();
  for (size_t i = 0; i < all.size(); ++i) {
    if (graph.batch_dims[i] < 0) continue;
    add_once(border.inputs, all[i]);
    break;
  }
  return border;
}

std::vector<at::Tensor> trained_parameters(const graph::Graph& graph, const std::vector<const Node*>& nodes) {
  std::vector<at::Tensor> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const Node* node : nodes) {
    for (const Value* value : node->reads()) {
      const at::Tensor parameter = trained_parameter(graph, value);
      if (parameter.defined() && seen.insert(parameter.unsafeGetTensorImpl()).second)
        found.push_back(parameter);
    }
  }
  return found;
}

}  // namespace ulp::distributed
