#include "ulp/distributed/segments.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/graph/extract.h"

namespace ulp::distributed {

namespace {

using graph::Node;
using graph::Value;

constexpr const char* kWhere = "distributed.Segments";

bool is_attribute(const Value* value) {
  return value->producer->kind() == Node::Kind::attribute;
}

/// A parameter that is trained; undefined for all else.
at::Tensor trained_parameter(const graph::Graph& graph, const Value* value) {
  const at::Tensor tensor = graph.attribute_tensor(value);
  return tensor.defined() && tensor.requires_grad() ? tensor : at::Tensor();
}

/// A view of a parameter or buffer, or of such a view: it has no memory of its own, so each piece makes it
/// anew.
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

void add_once(std::vector<const Value*>& values, const Value* value) {
  if (std::ranges::find(values, value) == values.end()) values.push_back(value);
}

/// What the nodes read of others, and what of theirs others read.
struct Border {
  std::vector<const Value*> inputs, results;
};

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

}  // namespace

Segments::Segments(const graph::GraphModule& model, int64_t bytes) : model_(model) {
  const graph::Graph& graph = model.graph();
  if (!graph.free.empty())
    fail(kWhere, "expected a model captured without free dimensions, got '", graph.free[0].name, "'");
  const auto& result = graph.output_node()->args.at(0);
  if (!result.is_value() || is_attribute(result.value) || is_view_of_attribute(*result.value->producer))
    fail(kWhere, "expected a model whose result is one tensor that it computes, got another one");
  for (const Value* value : graph.inputs()) inputs_.push_back(slot(value));
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<const Node*> nodes;
  int64_t fresh = 0;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call && node->kind() != Node::Kind::module) continue;
    if (is_view_of_attribute(*node)) continue;
    const size_t known = nodes.size();
    add_with_views(nodes, node.get());
    for (size_t i = known; i < nodes.size(); ++i) {
      for (const Value* value : nodes[i]->reads()) {
        const at::Tensor parameter = trained_parameter(graph, value);
        if (parameter.defined() && seen.insert(parameter.unsafeGetTensorImpl()).second)
          fresh += static_cast<int64_t>(parameter.nbytes());
      }
    }
    if (fresh < bytes) continue;
    add(std::exchange(nodes, {}));
    fresh = 0;
  }
  if (!nodes.empty()) add(nodes);
  result_ = slot(result.value);
  free_early();
}

size_t Segments::slot(const Value* value) {
  const auto at = std::ranges::find(values_, value) - values_.begin();
  if (at == static_cast<ptrdiff_t>(values_.size())) values_.push_back(value);
  return static_cast<size_t>(at);
}

void Segments::add(const std::vector<const Node*>& nodes) {
  const graph::Graph& graph = model_.graph();
  const Border border = border_of(graph, nodes);
  Segment& segment = segments_.emplace_back();
  for (const Value* value : border.inputs) segment.inputs.push_back(slot(value));
  for (const Value* value : border.results) segment.results.push_back(slot(value));
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const Node* node : nodes) {
    for (const Value* value : node->reads()) {
      const at::Tensor parameter = trained_parameter(graph, value);
      if (parameter.defined() && seen.insert(parameter.unsafeGetTensorImpl()).second)
        segment.parameters.push_back(parameter);
    }
  }
  segment.module =
      std::make_shared<graph::GraphModule>(graph::extract(graph, nodes, border.inputs, border.results).graph);
}

/// Each value goes after the last piece that reads it.
void Segments::free_early() {
  std::vector<bool> kept(values_.size(), false);
  kept[result_] = true;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    for (const size_t slot : segment->inputs) {
      if (!kept[slot]) segment->last_reads.push_back(slot);
      kept[slot] = true;
    }
  }
}

at::Tensor Segments::run(const std::vector<at::Tensor>& inputs, const Before& before,
                         const After& after) const {
  model_.check_inputs(inputs);
  std::vector<at::Tensor> values(values_.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[inputs_[i]] = inputs[i];
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    before(s);
    std::vector<at::Tensor> reads;
    for (const size_t slot : segment.inputs) reads.push_back(values[slot]);
    segment.module->train(model_.is_training());
    const std::vector<at::Tensor> results = segment.module->forward_all(reads);
    after(s, results);
    for (size_t i = 0; i < results.size(); ++i) values[segment.results[i]] = results[i];
    for (const size_t slot : segment.last_reads) values[slot].reset();
  }
  return values[result_];
}

}  // namespace ulp::distributed
