#include <torch/types.h>

#include "ulp/graph/passes/canonicalize_attention.h"
#include "ulp/graph/passes/canonicalize_convolution.h"
#include "ulp/graph/passes/canonicalize_inner.h"
#include "ulp/graph/passes/canonicalize_shuffle.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

/// The 2-d value that the argument is the transpose of, or null.
Value* transposed(const Argument& arg) {
  if (Node* t = producer(arg, "aten::t")) return t->args[0].value;
  Node* swap = producer(arg, "aten::transpose");
  if (!swap || rank(arg) != 2 || !integer(swap->args[1]) || !integer(swap->args[2])) return nullptr;
  return (*integer(swap->args[1]) - *integer(swap->args[2])) % 2 != 0 ? swap->args[0].value : nullptr;
}

bool is_one(const Argument& arg) {
  return number(arg) == 1.0;
}

/// t + addmm -> linear: the very calls that aten::linear makes.
bool from_addmm(Graph& graph, Node& node, PassReport& report) {
  if (!node.is("aten::addmm")) return false;
  Value* weight = transposed(node.arg("mat2"));
  if (!weight || rank(node.arg("self")) != 1) return false;
  if (!is_one(node.arg("beta")) || !is_one(node.arg("alpha"))) {
    report.near_misses.push_back(label(node) + " not made linear: beta or alpha is not 1");
    return false;
  }
  graph.retarget(&node, "aten::linear", {node.arg("mat1"), weight, node.arg("self")});
  return true;
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

/// matmul or mm with a transposed matrix, and the addition of a bias behind it -> linear.
bool from_matmul(Graph& graph, Node& node, PassReport& report) {
  if (!node.is("aten::matmul") && !node.is("aten::mm")) return false;
  Value* weight = transposed(node.args[1]);
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

/// Padding given as a word -> numbers, where they are the same on both sides.
bool from_padding_word(Graph& graph, Node& node, PassReport& report) {
  for (const char* op : {"aten::conv1d", "aten::conv2d", "aten::conv3d"}) {
    if (node.target() != std::string(op) + ".padding") continue;
    auto dilation = integers(node.arg("dilation"));
    const Value* weight = node.args[1].value;
    if (!weight->meta || !dilation) return false;
    size_t dims = weight->meta->sizes.size() - 2;
    std::vector<int64_t> padding(dims, 0), steps = spread(*dilation, dims);
    bool same = node.arg("padding").literal.toStringRef() == "same";
    for (size_t i = 0; same && i < dims; ++i) {
      int64_t total = steps[i] * (weight->meta->sizes[i + 2].offset - 1);
      if (total % 2) {
        report.near_misses.push_back(label(node) + " keeps padding 'same': it is uneven");
        return false;
      }
      padding[i] = total / 2;
    }
    graph.retarget(&node, op,
                   {node.args[0], node.args[1], node.args[2], node.args[3], Argument(c10::IValue(padding)),
                    node.args[5], node.args[6]});
    return true;
  }
  return false;
}

/// mean over H and W -> adaptive_avg_pool2d to 1x1, which LibTorch computes as that mean.
bool from_mean(Graph& graph, Node& node) {
  if (node.target() != "aten::mean.dim" || rank(node.args[0]) != 4 || !node.arg("dtype").is_none())
    return false;
  auto dims = integers(node.arg("dim"));
  if (!dims || dims->size() != 2) return false;
  int64_t a = ((*dims)[0] + 4) % 4, b = ((*dims)[1] + 4) % 4;
  if (a + b != 5 || std::abs(a - b) != 1 || a < 2 || b < 2) return false;
  Argument one_by_one(c10::IValue(std::vector<int64_t>{1, 1}));
  if (node.arg("keepdim").literal.toBool()) {
    graph.retarget(&node, "aten::adaptive_avg_pool2d", {node.args[0], one_by_one});
    return true;
  }
  Node* pool = graph.call("aten::adaptive_avg_pool2d", {node.args[0], one_by_one}, &node);
  pool->scope = node.scope;
  if (node.output()->meta) {
    pool->output()->meta = node.output()->meta;
    pool->output()->meta->sizes.insert(pool->output()->meta->sizes.end(), 2, SizeExpr{0, 1, 1});
  }
  graph.retarget(&node, "aten::flatten.using_ints",
                 {pool->output(), Argument(c10::IValue(int64_t{1})), Argument(c10::IValue(int64_t{-1}))});
  return true;
}

}  // namespace

PassReport canonicalize(Graph& graph) {
  PassReport report{"canonicalize", {}, {}};
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if (node->kind() != Node::Kind::call) continue;
    std::string before = label(*node) + ": " + node->target();
    // A node that a rewrite erased comes before the one it was merged into, so it is not met again.
    const char* inner = from_inner(graph, *node);
    const char* form = inner                                     ? inner
                       : from_addmm(graph, *node, report)        ? "aten::linear"
                       : from_matmul(graph, *node, report)       ? "aten::linear"
                       : from_convolution(graph, *node, report)  ? "a plain convolution"
                       : from_padding_word(graph, *node, report) ? "padding in numbers"
                       : from_mean(graph, *node)                 ? "aten::adaptive_avg_pool2d"
                                                                 : nullptr;
    if (form) report.changes.push_back(before + " -> " + form);
  }
  fuse_attention(graph, report);
  fuse_channel_shuffle(graph, report);
  graph.remove_dead();
  return report;
}

}  // namespace ulp::graph
