#include "ulp/lower/spell_out.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string>
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

Argument literal(int64_t value) {
  return c10::IValue(value);
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

/// Row o holds the shares with which the mean of window o of `from` elements takes each of them.
at::Tensor mean_windows(int64_t from, int64_t windows) {
  at::Tensor shares = torch::zeros({windows, from});
  for (int64_t o = 0; o < windows; ++o) {
    const int64_t begin = o * from / windows, end = ((o + 1) * from + windows - 1) / windows;
    shares[o].slice(0, begin, end).fill_(1.0 / static_cast<double>(end - begin));
  }
  return shares;
}

/// Means of windows that overlap or differ in size are products with a matrix, one for each dimension.
void adaptive_pool(Graph& graph, Node& node) {
  const graph::Value* x = node.args.at(0).value;
  const std::optional<std::vector<int64_t>> size = graph::integers(node.arg("output_size"));
  if (x == nullptr || !x->meta || x->meta->sizes.size() != 4 || !size || size->size() != 2) return;
  const int64_t height = x->meta->sizes[2].offset, width = x->meta->sizes[3].offset;
  const int64_t rows = (*size)[0], columns = (*size)[1];
  if (rows < 1 || columns < 1 || (height % rows == 0 && width % columns == 0)) return;
  const auto pooled = [&](const Argument& from, int64_t length, int64_t windows) {
    const std::string name = graph.unique_name(node.name() + ".windows");
    graph.set_attribute(name, {graph::Attribute::Kind::constant, mean_windows(length, windows)});
    return called(graph, "aten::linear", {from, graph.attribute(name), c10::IValue()}, node);
  };
  const auto swapped = [&](const Argument& from) {
    return called(graph, "aten::transpose.int", {from, literal(2), literal(3)}, node);
  };
  const Argument wide = swapped(pooled(node.args[0], width, columns));
  graph.retarget(&node, "aten::transpose.int", {pooled(wide, height, rows), literal(2), literal(3)});
}

/// adaptive_max_pool1d and 2d.
void adaptive_max_pool(Graph& graph, Node& node) {
  const graph::Value* x = node.args.at(0).value;
  const std::optional<std::vector<int64_t>> given = graph::integers(node.arg("output_size"));
  const size_t spatial = node.is("aten::adaptive_max_pool2d") ? 2 : 1;
  if (x == nullptr || !x->meta || x->meta->sizes.size() != spatial + 2 || !given || given->empty()) return;
  if (!graph.users(node.output(1)).empty()) return;
  std::vector<int64_t> window;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t length = x->meta->sizes[i + 2].offset, size = (*given)[std::min(i, given->size() - 1)];
    if (!x->meta->sizes[i + 2].constant() || size < 1 || length % size != 0) return;
    window.push_back(length / size);
  }
  const std::vector<int64_t> none(spatial, 0), one(spatial, 1);
  const Argument pooled = called(graph, spatial == 2 ? "aten::max_pool2d" : "aten::max_pool1d",
                                 {node.args[0], c10::IValue(window), c10::IValue(window), c10::IValue(none),
                                  c10::IValue(one), c10::IValue(false)},
                                 node);
  pooled.value->meta = node.output()->meta;
  graph.replace_uses(node.output(), pooled.value);
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
  graph.replace_uses(node.output(), sum(graph, fresh, product(graph, update, change, node), node).value);
}

}  // namespace

void spell_out_pools(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::adaptive_max_pool1d") || node->is("aten::adaptive_max_pool2d"))
      adaptive_max_pool(graph, *node);
  }
  graph.remove_dead();
}

void spell_out(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::stack")) stack(graph, *node);
    if (node->is("aten::softmax") || node->is("aten::log_softmax")) softmax(graph, *node);
    if (node->is("aten::matmul") || node->is("aten::mm")) matmul(graph, *node);
    if (node->is("aten::baddbmm")) baddbmm(graph, *node);
    if (node->is("aten::cosine_similarity")) cosine_similarity(graph, *node);
    if (node->is("aten::adaptive_avg_pool2d")) adaptive_pool(graph, *node);
    if (node->is("aten::lstm_cell")) lstm_cell(graph, *node);
    if (node->is("aten::gru_cell")) gru_cell(graph, *node);
  }
}

}  // namespace ulp::lowering
