#include "ulp/lower/shared_heads.h"

#include <optional>
#include <string>

#include "ulp/lower/attention.h"
#include "ulp/lower/match.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/strided_view.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// [N, heads, rows, depth], each head `times` times side by side.
StridedView view_of_heads(const std::vector<SizeExpr>& sizes, int64_t times) {
  StridedView view{.tensor = 0, .offset = 0, .dims = std::vector<std::vector<Piece>>(4)};
  view.dims[0] = {{runtime::kBatch, 0}};
  int64_t stride = 1;
  for (size_t d = 3; d > 0; --d) {
    if (sizes[d].offset > 1) view.dims[d] = {{sizes[d].offset, stride}};
    stride *= sizes[d].offset;
  }
  if (times > 1) view.dims[1].push_back({times, 0});
  return view;
}

bool are_heads(const Value& value) {
  if (!value.meta || value.meta->sizes.size() != 4) return false;
  const std::vector<SizeExpr>& sizes = value.meta->sizes;
  if (sizes[0] != SizeExpr{1, 1, 0}) return false;
  for (size_t d = 1; d < 4; ++d) {
    if (!sizes[d].constant() || sizes[d].offset < 1) return false;
  }
  return true;
}

/// The heads that a value repeats; null where it repeats none.
Value* shared_in(Value* heads) {
  if (!are_heads(*heads)) return nullptr;
  const std::vector<SizeExpr>& all = heads->meta->sizes;
  std::vector<const Node*> chain;
  for (Value* value = heads;;) {
    const Node& node = *value->producer;
    const bool views = node.kind() == Node::Kind::call && (is_move(node) || is_identity(node)) &&
                       node.outputs().size() == 1 && node.args[0].is_value();
    if (!views) return nullptr;
    chain.push_back(&node);
    value = node.args[0].value;
    if (!are_heads(*value)) continue;
    const std::vector<SizeExpr>& own = value->meta->sizes;
    if (own[1] == all[1] || own[2] != all[2] || own[3] != all[3] || all[1].offset % own[1].offset != 0)
      continue;
    std::optional<StridedView> view = view_of_heads(own, 1);
    for (size_t i = chain.size(); i-- > 0 && view;) {
      if (is_move(*chain[i])) view = view_through(*chain[i], *view);
    }
    if (view && joined(*view) == view_of_heads(own, all[1].offset / own[1].offset)) return value;
  }
}

}  // namespace

graph::PassReport share_heads(Graph& graph) {
  graph::PassReport report{.pass = "share_heads", .changes = {}, .near_misses = {}};
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call || !is_attention(*node) || !has_attention_step(*node)) continue;
    if (!node->arg("attn_mask").is_none() || bool_arg(*node, "enable_gqa")) continue;
    Value* const key = shared_in(node->arg("key").value);
    Value* const value = shared_in(node->arg("value").value);
    if (key == nullptr || value == nullptr || key->meta->sizes != value->meta->sizes) continue;
    std::vector<Argument> args = node->args;
    args[1] = key;
    args[2] = value;
    args[7] = c10::IValue(true);
    const std::string target = node->target();
    graph.retarget(node.get(), target, std::move(args));
    report.changes.push_back(node->name() + ": keys and values of " +
                             std::to_string(key->meta->sizes[1].offset) + " heads are read once");
  }
  return report;
}

}  // namespace ulp::lowering
