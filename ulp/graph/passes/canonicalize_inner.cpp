#include "ulp/graph/passes/canonicalize_inner.h"

#include <algorithm>

namespace ulp::graph {
namespace {

using Arguments = std::vector<Argument>;

/// The arguments with these names.
Arguments pick(const Node& node, std::initializer_list<const char*> names) {
  Arguments args;
  for (const char* name : names) args.push_back(node.arg(name));
  return args;
}

/// Those of a batch norm that uses the statistics it is given.
Arguments batch_norm(const Node& node) {
  Arguments args = pick(node, {"input", "weight", "bias", "running_mean", "running_var"});
  const Argument yes = c10::IValue(true), no = c10::IValue(false);
  args.insert(args.end(), {no, node.arg("momentum"), node.arg("eps"), yes});
  return args;
}

Arguments layer_norm(const Node& node) {
  Arguments args = pick(node, {"input", "normalized_shape", "weight", "bias", "eps"});
  args.emplace_back(c10::IValue(true));
  return args;
}

Arguments group_norm(const Node& node) {
  Arguments args = pick(node, {"input", "group", "weight", "bias", "eps"});
  args.emplace_back(c10::IValue(true));
  return args;
}

Arguments as_they_are(const Node& node) {
  return node.args;
}

struct InnerOp {
  const char* inner;
  const char* plain;
  Arguments (*arguments)(const Node&);
};

constexpr InnerOp kTable[] = {
    {"aten::native_layer_norm", "aten::layer_norm", layer_norm},
    {"aten::native_group_norm", "aten::group_norm", group_norm},
    {"aten::_native_batch_norm_legit_no_training", "aten::batch_norm", batch_norm},
    {"aten::_native_batch_norm_legit", "aten::batch_norm", batch_norm},
    {"aten::max.other", "aten::maximum", as_they_are},
    {"aten::min.other", "aten::minimum", as_they_are},
    {"aten::native_dropout", "aten::dropout", as_they_are},
    {"aten::max_pool2d_with_indices", "aten::max_pool2d", as_they_are},
    {"aten::max_pool3d_with_indices", "aten::max_pool3d", as_they_are},
};

/// A batch norm that takes its statistics from the batch, or writes them; dropout in train mode.
bool trains(const Node& node) {
  const bool norm = node.target() == "aten::_native_batch_norm_legit",
             dropout = node.is("aten::native_dropout");
  if (!norm && !dropout) return false;
  const Argument& training = node.arg(norm ? "training" : "train");
  return training.kind != Argument::Kind::literal || !training.literal.isBool() || training.literal.toBool();
}

}  // namespace

const char* from_inner(Graph& graph, Node& node) {
  const auto* row =
      std::ranges::find_if(kTable, [&](const InnerOp& one) { return node.target() == one.inner; });
  if (row == std::end(kTable) || trains(node)) return nullptr;
  for (size_t i = 1; i < node.outputs().size(); ++i) {
    if (!graph.users(node.output(i)).empty()) return nullptr;
  }
  Node* plain = graph.call(row->plain, row->arguments(node), &node);
  plain->scope = node.scope;
  plain->output()->meta = node.output()->meta;
  graph.replace_uses(node.output(), plain->output());
  if (node.has_effect()) graph.erase(&node);
  return row->plain;
}

}  // namespace ulp::graph
