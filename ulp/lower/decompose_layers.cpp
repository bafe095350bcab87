#include "ulp/lower/decompose_layers.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/writer.h"

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

/// beta self + alpha mat1 mat2; a linear layer where that is what it says.
void addmm(Graph& graph, Node& node) {
  const Argument self = node.arg("self"), beta = node.arg("beta"), alpha = node.arg("alpha");
  const bool plain = graph::number(beta) == 1.0 && graph::number(alpha) == 1.0;
  const bool bias = plain && self.is_value() && graph.attribute_tensor(self.value).defined() &&
                    graph.attribute_tensor(self.value).dim() == 1;
  const Argument product = called(graph, "aten::mm", {node.arg("mat1"), node.arg("mat2")}, node);
  matmul(graph, *product.value->producer);
  if (bias && product.value->producer->is("aten::linear")) {
    const std::vector<Argument> layer = product.value->producer->args;
    return graph.retarget(&node, "aten::linear", {layer[0], layer[1], self});
  }
  const Argument scaled =
      graph::number(beta) == 1.0 ? self : called(graph, "aten::mul.Scalar", {self, beta}, node);
  graph.retarget(&node, "aten::add.Tensor", {scaled, product, alpha});
}

/// The first half of the channels, times the sigmoid of the second one.
void glu(Graph& graph, Node& node) {
  const graph::Value* x = node.args.at(0).value;
  const std::optional<int64_t> given = graph::integer(node.arg("dim"));
  if (x == nullptr || !x->meta || !given) return;
  const auto rank = static_cast<int64_t>(x->meta->sizes.size());
  const int64_t dim = *given < 0 ? *given + rank : *given;
  const graph::SizeExpr& size = x->meta->sizes.at(static_cast<size_t>(dim));
  if (dim == 0 || !size.constant()) return;
  const Writer write(graph, node);
  const auto part = [&](int64_t begin, int64_t end) {
    return write("aten::slice.Tensor",
                 {node.args[0], literal(dim), literal(begin), literal(end), literal(1)});
  };
  const Argument gate = write("aten::sigmoid", {part(size.offset / 2, size.offset)});
  graph.retarget(&node, "aten::mul.Tensor", {part(0, size.offset / 2), gate});
}

/// x / sqrt(mean(x^2) + eps) [weight] over the last dimensions.
void rms_norm(Graph& graph, Node& node) {
  const std::optional<std::vector<int64_t>> shape = graph::integers(node.arg("normalized_shape"));
  if (!shape || shape->empty()) return;
  const Writer write(graph, node);
  const Argument x = node.arg("input");
  std::vector<int64_t> dims;
  double elements = 1;
  for (const int64_t size : *shape) {
    dims.push_back(-std::ssize(*shape) + std::ssize(dims));
    elements *= static_cast<double>(size);
  }
  const double eps =
      graph::number(node.arg("eps")).value_or(static_cast<double>(std::numeric_limits<float>::epsilon()));
  const Argument norm = write("aten::linalg_vector_norm", {x, c10::IValue(2), ints(dims), c10::IValue(true)});
  const Argument squares = write("aten::mul.Tensor", {norm, norm});
  const Argument mean = write("aten::mul.Scalar", {squares, c10::IValue(1 / elements)});
  const Argument factor =
      write("aten::rsqrt", {write("aten::add.Scalar", {mean, c10::IValue(eps), literal(1)})});
  if (node.arg("weight").is_none()) return graph.retarget(&node, "aten::mul.Tensor", {x, factor});
  const Argument scaled = write("aten::mul.Tensor", {x, factor});
  graph.retarget(&node, "aten::mul.Tensor", {scaled, node.arg("weight")});
}

/// The norms of all differences of a row of x1 and a row of x2.
void cdist(Graph& graph, Node& node) {
  const std::optional<double> p = graph::number(node.arg("p"));
  if (!p || *p < 0) return;
  const Writer write(graph, node);
  const Argument rows = write.unsqueezed(node.arg("x1"), -2), columns = write.unsqueezed(node.arg("x2"), -3);
  const Argument apart = write("aten::sub.Tensor", {rows, columns, literal(1)});
  if (*p == 1 || *p == 2 || *p == std::numeric_limits<double>::infinity()) {
    return graph.retarget(&node, "aten::linalg_vector_norm", {apart, c10::IValue(*p), ints({-1})});
  }
  if (*p == 0) {
    const Argument differs = write("aten::ne.Scalar", {apart, c10::IValue(0.0)});
    return graph.retarget(&node, "aten::sum.dim_IntList", {differs, ints({-1})});
  }
  const auto power = [&](const Argument& x, double exponent) {
    return write("aten::pow.Tensor_Scalar", {x, c10::IValue(exponent)});
  };
  const Argument sum = write("aten::sum.dim_IntList", {power(write("aten::abs", {apart}), *p), ints({-1})});
  graph.retarget(&node, "aten::pow.Tensor_Scalar", {sum, c10::IValue(1 / *p)});
}

/// The source in the other's sizes and type.
void copy(Graph& graph, Node& node) {
  const Argument &self = node.arg("self"), &source = node.arg("src");
  if (!self.is_value() || !source.is_value() || !source.value->meta || !node.output()->meta) return;
  const Writer write(graph, node);
  const graph::TensorMeta &from = *source.value->meta, &to = *node.output()->meta;
  Argument made = source;
  if (from.sizes != to.sizes) made = write("aten::expand", {made, sizes_argument(to.sizes)});
  if (from.dtype != to.dtype) made = write("aten::to.dtype", {made, c10::IValue(to.dtype)});
  write.replace(made);
}

/// The sum of products along a dimension, each side over its norm, which is at least eps.
void cosine_similarity(Graph& graph, Node& node) {
  const Argument a = node.arg("x1"), b = node.arg("x2"), eps = node.arg("eps");
  const Argument dims = c10::IValue(std::vector<int64_t>{graph::integer(node.arg("dim")).value_or(1)});
  const auto sum_of_products = [&](const Argument& x, const Argument& y) {
    const Argument product = called(graph, "aten::mul.Tensor", {x, y}, node);
    return called(graph, "aten::sum.dim_IntList", {product, dims}, node);
  };
  const auto norm = [&](const Argument& x) {
    const Argument root = called(graph, "aten::sqrt", {sum_of_products(x, x)}, node);
    return called(graph, "aten::clamp_min", {root, eps}, node);
  };
  const Argument norms = called(graph, "aten::mul.Tensor", {norm(a), norm(b)}, node);
  graph.retarget(&node, "aten::div.Tensor", {sum_of_products(a, b), norms});
}

/// Equal parts of the last of two dimensions.
std::vector<Argument> pieces(Graph& graph, const Argument& rows, int64_t count, Node& node) {
  Node* cut = graph.call("aten::chunk", {rows, literal(count), literal(1)}, &node);
  cut->scope = node.scope;
  graph.set_output_count(cut, static_cast<size_t>(count));
  std::vector<Argument> parts;
  for (const auto& part : cut->outputs()) parts.emplace_back(part.get());
  return parts;
}

Argument sum(Graph& graph, const Argument& a, const Argument& b, Node& node) {
  return called(graph, "aten::add.Tensor", {a, b, literal(1)}, node);
}

Argument product(Graph& graph, const Argument& a, const Argument& b, Node& node) {
  return called(graph, "aten::mul.Tensor", {a, b}, node);
}

/// The formulas of torch::nn::LSTMCell, gates in the order i, f, g, o.
void lstm_cell(Graph& graph, Node& node) {
  const Argument& state = node.arg("hx");
  if (state.kind != Argument::Kind::list || state.items.size() != 2) return;
  const Argument h = state.items[0], c = state.items[1];
  const Argument from_x =
      called(graph, "aten::linear", {node.arg("input"), node.arg("w_ih"), node.arg("b_ih")}, node);
  const Argument from_h = called(graph, "aten::linear", {h, node.arg("w_hh"), node.arg("b_hh")}, node);
  const std::vector<Argument> gates = pieces(graph, sum(graph, from_x, from_h, node), 4, node);
  const auto curve = [&](const char* op, const Argument& x) { return called(graph, op, {x}, node); };
  const Argument kept = product(graph, curve("aten::sigmoid", gates[1]), c, node);
  const Argument taken =
      product(graph, curve("aten::sigmoid", gates[0]), curve("aten::tanh", gates[2]), node);
  const Argument next = sum(graph, kept, taken, node);
  const Argument out = product(graph, curve("aten::sigmoid", gates[3]), curve("aten::tanh", next), node);
  out.value->meta = node.output(0)->meta;
  next.value->meta = node.output(1)->meta;
  graph.replace_uses(node.output(0), out.value);
  graph.replace_uses(node.output(1), next.value);
}

/// The formulas of torch::nn::GRUCell, gates in the order r, z, n.
void gru_cell(Graph& graph, Node& node) {
  const Argument h = node.arg("hx");
  const auto gates_of = [&](const Argument& x, const char* weight, const char* bias) {
    return pieces(graph, called(graph, "aten::linear", {x, node.arg(weight), node.arg(bias)}, node), 3, node);
  };
  const std::vector<Argument> x = gates_of(node.arg("input"), "w_ih", "b_ih");
  const std::vector<Argument> s = gates_of(h, "w_hh", "b_hh");
  const Argument reset = called(graph, "aten::sigmoid", {sum(graph, x[0], s[0], node)}, node);
  const Argument update = called(graph, "aten::sigmoid", {sum(graph, x[1], s[1], node)}, node);
  const Argument fresh =
      called(graph, "aten::tanh", {sum(graph, x[2], product(graph, reset, s[2], node), node)}, node);
  const Argument change = called(graph, "aten::sub.Tensor", {h, fresh, literal(1)}, node);
  const Argument next = sum(graph, fresh, product(graph, update, change, node), node);
  next.value->meta = node.output()->meta;
  graph.replace_uses(node.output(), next.value);
}

/// x.new_zeros(sizes) and its likes: of x the type is read alone.
void new_filled(Graph& graph, Node& node) {
  if (!node.output()->meta) return;
  const bool full = node.is("aten::new_full");
  const char* target = full ? "aten::full" : node.is("aten::new_ones") ? "aten::ones" : "aten::zeros";
  std::vector<Argument> args(node.args.begin() + 1, node.args.end());
  args.at(full ? 2 : 1) = c10::IValue(node.output()->meta->dtype);
  graph.retarget(&node, target, std::move(args));
}

}  // namespace

void spell_out(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (is_any(*node, {"aten::new_zeros", "aten::new_ones", "aten::new_full"})) new_filled(graph, *node);
    if (node->is("aten::stack")) stack(graph, *node);
    if (node->is("aten::softmax") || node->is("aten::log_softmax")) softmax(graph, *node);
    if (node->is("aten::matmul") || node->is("aten::mm")) matmul(graph, *node);
    if (node->is("aten::cosine_similarity")) cosine_similarity(graph, *node);
    if (node->is("aten::addmm")) addmm(graph, *node);
    if (node->is("aten::rms_norm")) rms_norm(graph, *node);
    if (node->is("aten::glu")) glu(graph, *node);
    if (node->is("aten::cdist") || node->is("aten::_cdist_forward")) cdist(graph, *node);
    if (node->is("aten::copy")) copy(graph, *node);
    if (node->is("aten::lstm_cell")) lstm_cell(graph, *node);
    if (node->is("aten::gru_cell")) gru_cell(graph, *node);
  }
}

}  // namespace ulp::lowering
