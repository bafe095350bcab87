#include "ulp/lower/fuse.h"

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/attention.h"
#include "ulp/lower/binary_graph.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {

using graph::Chain;
using graph::Node;

namespace {

bool is_linear(const Node& node) {
  return node.is("aten::linear") || node.is("ulp::linear_dynamic");
}

bool is_fusible_layer(const Node& node) {
  return node.is("aten::conv2d") || node.is("aten::conv3d") || is_linear(node) || is_binary_layer(node);
}

bool takes_quantize(const Node& node) {
  return is_fusible_layer(node) || is_plain_add(node) || node.is("aten::mean") || node.is("aten::cat") ||
         node.is("aten::upsample_bilinear2d") || node.is("aten::layer_norm") || node.is("aten::group_norm") ||
         node.is("aten::instance_norm");
}

/// A clamp by itself keeps its input's codes.
bool takes_quantize(const Group& group) {
  const Node& node = *group.root;
  if (!group.inner.empty()) return true;
  // The heads joined again; by itself the result is a view.
  if (is_attention(node)) return group.last != &node;
  return takes_quantize(node) || (is_pointwise(node) && !graph::is_clamp(node));
}

}  // namespace

graph::FusionPolicy engine_policy() {
  return {.is_layer = is_fusible_layer,
          .refuses_add = {},
          .takes_activation = [](const Node& op, Activation kind) {
            return is_fusible_layer(op) || !is_smooth_activation(kind);
          }};
}

bool is_plain_add(const Node& node) {
  return node.kind() == Node::Kind::call && graph::sum_obstacle(node).empty();
}

Groups::Groups(const graph::Graph& graph, const std::vector<Chain>& chains) {
  for (const Chain& chain : chains) {
    if (chain.last() == chain.op && is_plain_add(*chain.op)) continue;  // arithmetic like any other
    for (const Node* part : {chain.op, chain.add, chain.activation}) {
      if (part) taken_.insert(part);
    }
    add(graph, {.root = chain.op,
                .last = chain.last(),
                .residual = chain.residual(),
                .activation = chain.kind,
                .result = chain.result()});
  }
  for (PointwiseRegion& region : pointwise_regions(graph, taken_)) {
    if (region.nodes.size() < 2) continue;
    taken_.insert(region.nodes.begin(), region.nodes.end());
    const Node* last = region.nodes.back();
    region.nodes.pop_back();
    add(graph, {.root = last, .last = last, .result = last->output(), .inner = std::move(region.nodes)});
  }
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call || !taken_.insert(node.get()).second) continue;
    Group group{.root = node.get(), .last = node.get()};
    if (const std::optional<JoinedHeads> joined = joined_heads(graph, *node)) {
      taken_.insert({joined->transpose, joined->reshape});
      group.last = joined->reshape;
    }
    if (group.last->outputs().size() == 1 && !node->is("ulp::quantize")) group.result = group.last->output();
    add(graph, group);
  }
}

const Group* Groups::at(const Node* node) const {
  const auto found = by_last_.find(node);
  return found == by_last_.end() ? nullptr : &found->second;
}

/// With the quantize behind it, if its step can end in codes.
void Groups::add(const graph::Graph& graph, Group group) {
  const Node* next =
      group.result && takes_quantize(group) ? graph::only_reader(graph, group.result) : nullptr;
  if (next && next->is("ulp::quantize")) {
    group.quantize = next;
    group.last = next;
    taken_.insert(next);
  }
  by_last_.emplace(group.last, group);
}

}  // namespace ulp::lowering
