#include "ulp/graph/passes/canonicalize_shuffle.h"

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using Sizes = std::vector<SizeExpr>;

const Sizes* sizes(const Value* value) {
  return value->meta ? &value->meta->sizes : nullptr;
}

/// What the node reads, if it is one of these ops; else null.
Value* read_by(const Value* value, std::initializer_list<const char*> ops) {
  const Node& node = *value->producer;
  for (const char* op : ops) {
    if (node.is(op) && node.args[0].is_value()) return node.args[0].value;
  }
  return nullptr;
}

constexpr auto kReshapes = {"aten::view", "aten::reshape", "aten::_unsafe_view", "aten::flatten",
                            "aten::unflatten"};

/// The value whose dimensions 1 and 2 of 5 the node swaps, or null.
Value* swapped(const Value* value) {
  Value* from = read_by(value, {"aten::transpose", "aten::permute"});
  if (from == nullptr) return nullptr;
  const Node& node = *value->producer;
  if (node.is("aten::permute")) {
    return integers(node.args[1]) == std::vector<int64_t>{0, 2, 1, 3, 4} ? from : nullptr;
  }
  const auto a = integer(node.args[1]), b = integer(node.args[2]);
  if (!a || !b) return nullptr;
  const int64_t low = std::min((*a + 5) % 5, (*b + 5) % 5), high = std::max((*a + 5) % 5, (*b + 5) % 5);
  return low == 1 && high == 2 ? from : nullptr;
}

struct Shuffle {
  Value* input = nullptr;
  int64_t groups = 0;
};

/// [N, C, H, W] -> [N, g, C / g, H, W] -> [N, C / g, g, H, W] -> [N, C, H, W].
Shuffle match(const Node& node) {
  if (node.kind() != Node::Kind::call || node.outputs().size() != 1) return {};
  Value* mixed = read_by(node.output(), kReshapes);
  if (mixed == nullptr) return {};
  while (Value* before = read_by(mixed, {"aten::contiguous", "aten::clone"})) mixed = before;
  Value* split = swapped(mixed);
  Value* input = split ? read_by(split, kReshapes) : nullptr;
  if (input == nullptr || !sizes(input) || !sizes(split) || !sizes(node.output())) return {};
  const Sizes &x = *sizes(input), &parts = *sizes(split);
  if (x.size() != 4 || parts.size() != 5 || x != *sizes(node.output())) return {};
  if (!x[1].constant() || !parts[1].constant() || !parts[2].constant()) return {};
  if (parts[1].offset * parts[2].offset != x[1].offset) return {};
  if (parts[0] != x[0] || parts[3] != x[2] || parts[4] != x[3]) return {};
  return {input, parts[1].offset};
}

}  // namespace

void fuse_channel_shuffle(Graph& graph, PassReport& report) {
  for (const auto& node : graph.nodes()) {
    const Shuffle found = match(*node);
    if (found.input == nullptr) continue;
    report.changes.push_back(label(*node) + ": " + node->target() + " -> aten::channel_shuffle");
    graph.retarget(node.get(), "aten::channel_shuffle", {found.input, Argument(c10::IValue(found.groups))});
    node->output()->meta->channels_last = found.input->meta->channels_last;
  }
}

}  // namespace ulp::graph
