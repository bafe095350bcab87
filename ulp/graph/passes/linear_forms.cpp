#include "ulp/graph/passes/linear_forms.h"

#include <utility>

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

bool from_left_weight(Graph& graph, Node& node) {
  if (!node.is("aten::matmul") && !node.is("aten::mm")) return false;
  if (rank(node.args[0]) != 2 || rank(node.args[1]) != 2) return false;
  Value* weight = node.args[0].value;
  Value* rows = transposed(graph, node.args[1], &node);
  if (!rows || !from_attributes(*weight->producer) || from_attributes(*rows->producer)) return false;
  Node* linear = graph.call("aten::linear", {rows, weight}, &node);
  linear->scope = node.scope;
  if (node.output()->meta) {
    linear->output()->meta = node.output()->meta;
    std::swap(linear->output()->meta->sizes[0], linear->output()->meta->sizes[1]);
  }
  graph.retarget(&node, "aten::t", {linear->output()});
  return true;
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
