#include "ulp/graph/passes/linear_forms.h"

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

bool is_one(const Argument& arg) {
  return number(arg) == 1.0;
}

/// Last size of a value, 0 where it is unknown.
int64_t features(const Value* value) {
  if (!value->meta || value->meta->sizes.empty() || !value->meta->sizes.back().constant()) return 0;
  return value->meta->sizes.back().offset;
}

/// The addition of a bias that is all there is behind a product, or null.
Node* bias_addition(const Graph& graph, const Node& product) {
  Node* add = sole_user(graph, product);
  if (!add || add->target() != "aten::add.Tensor" || !is_one(add->arg("alpha"))) return nullptr;
  const Argument& other = add->args[1];
  bool bias = add->args[0].value == product.output() && other.is_value() && rank(other) == 1 &&
              features(other.value) == features(product.output()) && from_attributes(*other.value->producer);
  return bias ? add : nullptr;
}

}  // namespace

Value* transposed(Graph&, const Argument& arg, Node*) {
  if (Node* t = producer(arg, "aten::t")) return t->args[0].value;
  Node* swap = producer(arg, "aten::transpose");
  if (!swap || rank(arg) != 2 || !integer(swap->args[1]) || !integer(swap->args[2])) return nullptr;
  return (*integer(swap->args[1]) - *integer(swap->args[2])) % 2 != 0 ? swap->args[0].value : nullptr;
}

bool from_addmm(Graph& graph, Node& node, WeightOf weight_of, PassReport& report) {
  if (!node.is("aten::addmm") || rank(node.arg("self")) != 1) return false;
  Value* weight = weight_of(graph, node.arg("mat2"), &node);
  if (!weight) return false;
  if (!is_one(node.arg("beta")) || !is_one(node.arg("alpha"))) {
    report.near_misses.push_back(label(node) + " not made linear: beta or alpha is not 1");
    return false;
  }
  graph.retarget(&node, "aten::linear", {node.arg("mat1"), weight, node.arg("self")});
  return true;
}

bool from_matmul(Graph& graph, Node& node, WeightOf weight_of, PassReport& report) {
  if (!node.is("aten::matmul") && !node.is("aten::mm")) return false;
  Value* weight = weight_of(graph, node.args[1], &node);
  if (!weight || !node.args[0].is_value()) return false;
  if (rank(node.args[0]) < 2) {
    report.near_misses.push_back(label(node) +
                                 " not made linear: the rank of its input is not known to be 2 "
                                 "or more");
    return false;
  }
  if (Node* add = bias_addition(graph, node)) {
    graph.retarget(add, "aten::linear", {node.args[0], weight, add->args[1]});
    graph.erase(&node);
  } else {
    graph.retarget(&node, "aten::linear", {node.args[0], weight});
  }
  return true;
}

}  // namespace ulp::graph
