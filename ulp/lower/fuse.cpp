#include "ulp/lower/fuse.h"

#include <ranges>

#include "ulp/lower/attention.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;

namespace {

/// The one node that reads the value, if it reads it once; a value that is a result of the model has none.
Node* only_reader(const graph::Graph& graph, const Value* value) {
  const std::vector<Node*> users = graph.users(value);
  if (users.size() != 1 || users[0]->kind() != Node::Kind::call) return nullptr;
  int reads = 0;
  for (const Value* read : users[0]->reads()) reads += read == value;
  return reads == 1 ? users[0] : nullptr;
}

bool is_linear(const Node& node) {
  return node.is("aten::linear") || node.is("ulp::linear_dynamic");
}

bool takes_residual(const Node& node) {
  return node.is("aten::conv2d") || is_linear(node);
}

bool takes_activation(const Node& node) {
  return takes_residual(node) || is_plain_add(node);
}

bool takes_quantize(const Node& node) {
  return takes_activation(node) || node.is("aten::avg_pool2d") || node.is("aten::adaptive_avg_pool2d") ||
         node.is("aten::mean") || node.is("aten::cat") || node.is("aten::upsample_bilinear2d");
}

Value* other_operand(const Node& add, const Value* value) {
  Value* self = add.arg("self").value;
  return self == value ? add.arg("other").value : self;
}

}  // namespace

bool is_plain_add(const Node& node) {
  if (node.kind() != Node::Kind::call || node.op() != "aten::add" || !has_arg(node, "alpha")) return false;
  const graph::Argument& a = node.arg("self");
  const graph::Argument& b = node.arg("other");
  return a.is_value() && b.is_value() && a.value->meta && b.value->meta &&
         a.value->meta->sizes == b.value->meta->sizes && number_arg(node, "alpha") == 1.0;
}

Groups::Groups(const graph::Graph& graph, const std::function<void(const std::string&)>& report) {
  // Backwards, so that of two convolutions that meet in an add the later one takes it: the other operand is
  // then ready when its step runs. Everything else afterwards, with what is left.
  for (const auto& node : std::views::reverse(graph.nodes())) {
    if (node->kind() == Node::Kind::call && takes_residual(*node)) grow(graph, node.get(), report);
  }
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && !taken_.contains(node.get())) grow(graph, node.get(), report);
  }
}

const Group* Groups::at(const Node* node) const {
  const auto found = by_last_.find(node);
  return found == by_last_.end() ? nullptr : &found->second;
}

void Groups::grow(const graph::Graph& graph, const Node* root,
                  const std::function<void(const std::string&)>& report) {
  Group group{.root = root, .last = root};
  Node* next = nullptr;
  const auto advance = [&](const Node* node) {
    group.last = node;
    taken_.insert(node);
    if (node->outputs().size() != 1) return;
    if (!node->is("ulp::quantize")) group.result = node->output();
    next = only_reader(graph, node->output());
    if (next != nullptr && taken_.contains(next)) next = nullptr;
  };
  advance(root);
  if (const std::optional<JoinedHeads> joined = joined_heads(graph, *root)) {
    advance(joined->transpose);
    advance(joined->reshape);
  }
  if (next != nullptr && takes_residual(*root) && is_plain_add(*next)) {
    Value* other = other_operand(*next, group.result);
    if (!graph.attribute_tensor(other).defined()) {
      group.residual = other;
      advance(next);
    } else if (report) {
      report(describe(*next) + " not fused into " + describe(*root) + ": it adds a parameter");
    }
  }
  if (next != nullptr && takes_activation(*root)) {
    const std::optional<runtime::Activation> activation = activation_of(*next);
    if (activation && (is_linear(*root) || *activation < runtime::Activation::gelu)) {
      group.activation = *activation;
      advance(next);
    }
  }
  if (next != nullptr && takes_quantize(*root) && next->is("ulp::quantize")) {
    group.quantize = next;
    advance(next);
  }
  by_last_.emplace(group.last, group);
}

}  // namespace ulp::lowering
