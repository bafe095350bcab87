#include "ulp/lower/spell_out.h"

#include <optional>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;

namespace {

/// A call of this op before `node`, of the same module.
Argument called(Graph& graph, const char* target, std::vector<Argument> args, Node& node) {
  Node* made = graph.call(target, std::move(args), &node);
  made->scope = node.scope;
  return made->output();
}

void stack(Graph& graph, Node& node) {
  const Argument& tensors = node.arg("tensors");
  if (tensors.kind != Argument::Kind::list) return;
  const Argument dim = node.arg("dim");
  std::vector<Argument> items;
  for (const Argument& tensor : tensors.items) {
    items.push_back(called(graph, "aten::unsqueeze", {tensor, dim}, node));
  }
  graph.retarget(&node, "aten::cat", {Argument::list(std::move(items)), dim});
}

void softmax(Graph& graph, Node& node) {
  const graph::Value* x = node.args.at(0).value;
  const std::optional<int64_t> given = graph::integer(node.arg("dim"));
  if (x == nullptr || !x->meta || !given) return;
  const auto rank = static_cast<int64_t>(x->meta->sizes.size());
  const int64_t dim = *given < 0 ? *given + rank : *given;
  if (dim == 0 || dim >= rank - 1) return;
  const Argument a = c10::IValue(dim), b = c10::IValue(rank - 1);
  // The others stay in order: of an image, that is how it lies in memory.
  const Argument moved = called(graph, "aten::movedim.int", {node.args[0], a, b}, node);
  std::vector<Argument> args = node.args;
  args[0] = moved;
  args[1] = b;
  Node* over_last = graph.call(node.target(), std::move(args), &node);
  over_last->scope = node.scope;
  graph.retarget(&node, "aten::movedim.int", {over_last->output(), b, a});
}

void matmul(Graph& graph, Node& node) {
  const graph::Value *x = node.args.at(0).value, *weight = node.args.at(1).value;
  if (x == nullptr || weight == nullptr || graph.attribute_tensor(x).defined()) return;
  const at::Tensor matrix = graph.attribute_tensor(weight);
  if (!matrix.defined() || matrix.dim() != 2 || !x->meta || x->meta->sizes.size() < 2) return;
  const std::string name = graph.unique_name(weight->name + ".transposed");
  graph.set_attribute(name, {graph::Attribute::Kind::constant, matrix.detach().t().contiguous()});
  graph.retarget(&node, "aten::linear", {node.args[0], graph.attribute(name), c10::IValue()});
}

void baddbmm(Graph& graph, Node& node) {
  if (graph::number(node.arg("beta")) != 1.0 || graph::number(node.arg("alpha")) != 1.0) return;
  const Argument product = called(graph, "aten::bmm", {node.args.at(1), node.args.at(2)}, node);
  graph.retarget(&node, "aten::add.Tensor", {node.args[0], product, c10::IValue(int64_t{1})});
}

}  // namespace

void spell_out(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::stack")) stack(graph, *node);
    if (node->is("aten::softmax") || node->is("aten::log_softmax")) softmax(graph, *node);
    if (node->is("aten::matmul") || node->is("aten::mm")) matmul(graph, *node);
    if (node->is("aten::baddbmm")) baddbmm(graph, *node);
  }
}

}  // namespace ulp::lowering
