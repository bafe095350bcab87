#include <torch/types.h>

#include "ulp/graph/passes/canonicalize_attention.h"
#include "ulp/graph/passes/canonicalize_convolution.h"
#include "ulp/graph/passes/canonicalize_frontend.h"
#include "ulp/graph/passes/canonicalize_inner.h"
#include "ulp/graph/passes/canonicalize_shuffle.h"
#include "ulp/graph/passes/linear_forms.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

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
    const char* python = inner ? nullptr : from_frontend(graph, *node);
    const char* form = inner                                           ? inner
                       : python                                        ? python
                       : from_addmm(graph, *node, transposed, report)  ? "aten::linear"
                       : from_left_weight(graph, *node)                ? "aten::linear"
                       : from_matmul(graph, *node, transposed, report) ? "aten::linear"
                       : from_convolution(graph, *node, report)        ? "a plain convolution"
                       : from_padding_word(graph, *node, report)       ? "padding in numbers"
                       : from_mean(graph, *node)                       ? "aten::adaptive_avg_pool2d"
                                                                       : nullptr;
    if (form) report.changes.push_back(before + " -> " + form);
  }
  fuse_attention(graph, report);
  fuse_channel_shuffle(graph, report);
  graph.remove_dead();
  return report;
}

}  // namespace ulp::graph
