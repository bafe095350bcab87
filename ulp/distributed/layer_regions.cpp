// The part of LayerSplitter that finds layers which can be split together.
#include <algorithm>
#include <functional>
#include <utility>

#include "ulp/distributed/layer_splitter.h"
#include "ulp/distributed/subgraphs.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::distributed {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

const std::string kNothingBefore = "no layer before it feeds it alone";

bool reads_split(const SplitFlow& flow, const Node& node) {
  return std::ranges::any_of(node.reads(), [&](const Value* value) { return flow.splits.contains(value); });
}

/// Nothing, or a stored vector that nobody else reads.
bool is_own_bias(const Graph& graph, const Argument& bias) {
  return bias.is_none() ||
         (bias.is_value() && is_attribute(bias.value) && graph.users(bias.value).size() == 1);
}

bool may_be_random(const Node& node) {
  if (!draws_random_numbers(node)) return false;
  const Argument& rate = node.arg(node.is("aten::dropout") ? "p" : "dropout_p");
  return graph::number(rate).value_or(1) != 0;
}

/// Sizes by which the units of a layer may be counted: dimensions of the values between it and the row, largest first.
std::vector<int64_t> unit_counts(const std::set<const Value*>& values, int64_t width) {
  std::set<int64_t, std::greater<>> counts = {width};
  for (const Value* value : values)
    for (const int64_t size : sizes_of(value))
      if (size > 0 && size < width && width % size == 0) counts.insert(size);
  return {counts.begin(), counts.end()};
}

}  // namespace

std::optional<LayerSplitter::Matrix> LayerSplitter::matrix_of(const Node& layer) const {
  if (!layer.is("aten::linear")) return std::nullopt;
  const Value* weight = layer.arg("weight").value;
  int64_t out_dim = 0;
  if (weight->producer->is("aten::t") && graph_.users(weight).size() == 1) {
    weight = weight->producer->args[0].value;
    out_dim = 1;
  }
  const at::Tensor tensor = graph_.attribute_tensor(weight);
  if (!tensor.defined() || tensor.dim() != 2 || graph_.users(weight).size() != 1) return std::nullopt;
  return Matrix{weight->producer->target(), out_dim};
}

LayerSplitter::Before LayerSplitter::layers_before(const Node& row) const {
  Before before;
  std::set<const Node*> found;
  const std::function<void(const Value*)> visit = [&](const Value* value) {
    const Node& maker = *value->producer;
    if (maker.kind() != Node::Kind::call || !before.between.insert(value).second) return;
    if (matrix_of(maker))
      found.insert(&maker);
    else if (can_follow(maker))
      std::ranges::for_each(maker.reads(), visit);
  };
  visit(row.args[0].value);
  for (const auto& node : graph_.nodes())
    if (found.contains(node.get())) before.layers.push_back(node.get());
  return before;
}

std::string LayerSplitter::grow(Region& region) const {
  SplitFlow& flow = region.flow;
  for (const auto& node : graph_.nodes()) {
    if (!reads_split(flow, *node)) continue;
    const std::string name = graph::label(*node);
    if (std::ranges::any_of(region.columns, [&](const Layer& layer) { return layer.node == node.get(); }))
      return name + " reads what another of its layers makes";
    if (node->kind() == Node::Kind::output) return "what is between its layers is a result of the model";
    if (!node->is("aten::linear")) {
      if (const std::string why = follow(flow, *node); !why.empty()) return name + " stands between: " + why;
      if (may_be_random(*node)) region.random.push_back(node.get());
      continue;
    }
    const Split* split = flow.of(node->args[0]);
    const auto matrix = matrix_of(*node);
    if (split == nullptr || !matrix || done_.contains(node.get()))
      return name + " cannot be split by its inputs";
    if (split->dim + 1 != static_cast<int64_t>(sizes_of(node->args[0].value).size()) || split->outer != 1)
      return name + " reads units in another order";
    region.rows.push_back({node.get(), *matrix, *split});
  }
  return "";
}

std::string LayerSplitter::make_region(const std::vector<Node*>& columns, int64_t width, int64_t units,
                                       Region& region) const {
  for (Node* node : columns) {
    const auto sizes = sizes_of(node->output());
    if (sizes.empty() || sizes.back() % width != 0)
      return graph::label(*node) + " has outputs of another number";
    if (!is_own_bias(graph_, node->arg("bias"))) return graph::label(*node) + " shares its bias";
    const Split split{static_cast<int64_t>(sizes.size()) - 1, sizes.back() / width, units, width / units};
    region.flow.splits[node->output()] = split;
    region.columns.push_back({node, *matrix_of(*node), split});
  }
  return grow(region);
}

std::string LayerSplitter::try_split(Node* row, const std::set<const Node*>& skipped) {
  const Before before = layers_before(*row);
  if (before.layers.empty()) return kNothingBefore;
  int64_t least = 0;
  for (const Node* node : before.layers) {
    if (done_.contains(node)) return "it reads " + graph::label(*node) + ", which is split with others";
    if (skipped.contains(node)) return graph::label(*node) + " is skipped by name";
    const auto sizes = sizes_of(node->output());
    const int64_t outputs = sizes.empty() ? 0 : sizes.back();
    least = least == 0 ? outputs : std::min(least, outputs);
  }
  std::string why = "it has fewer units than there are processes";
  size_t furthest = 0;
  for (const int64_t joined : {1, 2, 3}) {  // queries, keys and values of one matrix
    if (least % joined != 0) continue;
    for (const int64_t units : unit_counts(before.between, least / joined)) {
      if (units < group_->size()) continue;
      Region region{.flow = {graph_, group_->rank(), group_->size()}};
      const std::string obstacle = make_region(before.layers, least / joined, units, region);
      if (obstacle.empty()) {
        apply(region);
        return "";
      }
      if (std::exchange(furthest, std::max(furthest, region.flow.splits.size())) < region.flow.splits.size())
        why = obstacle;
    }
  }
  return why;
}

void LayerSplitter::split_layers(const std::set<const Node*>& skipped) {
  std::vector<Node*> layers;
  for (const auto& node : graph_.nodes())
    if (matrix_of(*node)) layers.push_back(node.get());
  for (Node* row : layers) {
    if (done_.contains(row)) continue;
    const std::string why = skipped.contains(row) ? "it is skipped by name" : try_split(row, skipped);
    if (!why.empty()) whole_.emplace_back(row, why);
  }
}

void LayerSplitter::report_whole() {
  // Layers that others feed come first: there is something to say about them.
  std::ranges::stable_partition(whole_, [](const auto& one) { return one.second != kNothingBefore; });
  for (const auto& [row, why] : whole_)
    if (!done_.contains(row)) report_.near_misses.push_back(graph::label(*row) + " stays whole: " + why);
}

}  // namespace ulp::distributed
