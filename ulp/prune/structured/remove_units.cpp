#include "ulp/prune/structured/remove_units.h"

#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/conditions.h"
#include "ulp/prune/structured/removed.h"

namespace ulp::prune {

using graph::Attribute;
using graph::Graph;
using graph::Node;

namespace {

at::Tensor cut_tensor(const at::Tensor& tensor, const std::vector<std::vector<int64_t>>& kept) {
  const torch::NoGradGuard no_grad;
  at::Tensor result = tensor.detach();
  for (size_t d = 0; d < kept.size(); ++d) {
    if (static_cast<int64_t>(kept[d].size()) != tensor.size(static_cast<int64_t>(d)))
      result = result.index_select(static_cast<int64_t>(d),
                                   torch::tensor(kept[d], tensor.options().dtype(at::kLong)));
  }
  const bool large = tensor.dim() == 4 || tensor.dim() == 5;
  return result.clone(large ? tensor.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

std::vector<std::vector<int64_t>> kept_of(const Layout& layout, const Survivors& left) {
  std::vector<std::vector<int64_t>> kept;
  for (const Axis& axis : layout.dims) kept.push_back(left.indices(axis));
  return kept;
}

std::vector<std::vector<int64_t>> all_of(const at::Tensor& tensor) {
  std::vector<std::vector<int64_t>> kept;
  for (const int64_t size : tensor.sizes()) {
    std::vector<int64_t>& dim = kept.emplace_back();
    for (int64_t i = 0; i < size; ++i) dim.push_back(i);
  }
  return kept;
}

void cut_attributes(Graph& graph, const Tracker& tracker, const Survivors& left, Kept& kept) {
  std::map<const void*, at::Tensor> made;    // a tensor that several names have stays one
  std::map<const void*, at::Tensor> memory;  // and so does memory that several tensors have
  for (const auto& [name, attribute] : std::vector(graph.attributes())) {
    const auto layout = tracker.attributes().find(name);
    kept[name] =
        layout == tracker.attributes().end() ? all_of(attribute.tensor) : kept_of(layout->second, left);
    at::Tensor& tensor = made[attribute.tensor.unsafeGetTensorImpl()];
    if (!tensor.defined()) {
      const void* data = attribute.tensor.numel() > 0 ? attribute.tensor.const_data_ptr() : nullptr;
      at::Tensor& first = memory[data];
      const bool shared = data != nullptr && first.defined();
      tensor = shared ? first.detach() : cut_tensor(attribute.tensor, kept[name]);
      if (!shared) first = tensor;
      tensor.set_requires_grad(attribute.tensor.requires_grad());
      if (attribute.tensor.is_leaf() && attribute.tensor.grad().defined())
        tensor.mutable_grad() = cut_tensor(attribute.tensor.grad(), kept[name]);
    }
    graph.set_attribute(name, {attribute.kind, tensor});
  }
  for (const graph::Condition& one : graph::conditions_of(graph))
    graph.set_attribute(graph::condition_of(one.buffer, one.modes),
                        {Attribute::Kind::constant, cut_tensor(one.held, kept[one.buffer]).detach().clone()});
}

void check_left(const Node& node, const Axis& axis, const Survivors& left) {
  if (!axis.empty() && left.count(axis) == 0)
    fail("prune.cut", "expected something to be left of '", node.name(), "', got nothing");
}

}  // namespace

RemovalResult remove_units(const graph::GraphModule& module, const Groups& groups, const Removals& removals) {
  graph::check_conditions(module.graph(), "prune.cut");
  const Tracker tracker(module.graph(), groups.options);
  return rebuilt(module, tracker, survivors(tracker, groups, removals));
}

RemovalResult rebuilt(const graph::GraphModule& module, const Tracker& tracker, const Survivors& left) {
  const Graph& old = module.graph();
  const std::shared_ptr<Graph> graph = old.clone();
  RemovalResult result;
  std::vector<Node*> nodes;
  auto before = old.nodes().begin();
  for (const auto& node : graph->nodes()) {
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      const Layout& layout = tracker.layout((*before)->output(i));
      graph::Value& value = *node->output(i);
      for (size_t d = 0; d < layout.dims.size(); ++d) {
        check_left(*node, layout.dims[d], left);
        if (value.meta && !left.whole(layout.dims[d]))
          value.meta->sizes[d] = with_count(value.meta->sizes[d], left.count(layout.dims[d]));
      }
    }
    nodes.push_back(node.get());
    ++before;
  }
  cut_attributes(*graph, tracker, left, result.kept);
  for (const auto& [place, rewrite] : tracker.rewrites()) rewrite(*graph, *nodes[place], left);
  result.module = std::make_shared<graph::GraphModule>(graph, module.notes());
  result.module->train(module.is_training());
  return result;
}

void zero_units(graph::GraphModule& module, const Groups& groups, const Removals& removals) {
  check_removals(groups, removals);
  const torch::NoGradGuard no_grad;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    for (const Member& member : groups.groups[g].members) {
      const Attribute* attribute = module.graph().find_attribute(member.tensor);
      if (!attribute)
        fail("prune.zero_units", "expected a tensor '", member.tensor, "' in the graph, got none");
      if (member.role == Role::constant || member.tensor.ends_with("running_var")) continue;
      std::vector<int64_t> rows;
      for (const int64_t unit : removals.units[g])
        rows.insert(rows.end(), member.indices[unit].begin(), member.indices[unit].end());
      if (!rows.empty()) {
        at::Tensor tensor = attribute->tensor.detach();
        tensor.index_fill_(member.dim, torch::tensor(rows, tensor.options().dtype(at::kLong)), 0);
      }
    }
  }
}

Removals removals_of(const Groups& groups, const std::string& tensor, int64_t dim,
                     const std::vector<int64_t>& indices) {
  Removals result;
  result.units.resize(groups.groups.size());
  std::set<int64_t> wanted(indices.begin(), indices.end());
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    std::set<int64_t> units;
    for (const Member& member : groups.groups[g].members) {
      if (member.tensor != tensor || member.dim != dim) continue;
      for (size_t u = 0; u < member.indices.size(); ++u) {
        for (const int64_t index : member.indices[u]) {
          if (std::ranges::find(indices, index) == indices.end()) continue;
          units.insert(static_cast<int64_t>(u));
          wanted.erase(index);
        }
      }
    }
    result.units[g].assign(units.begin(), units.end());
  }
  if (!wanted.empty()) {
    std::string why = "no group has it";
    for (const Obstacle& obstacle : groups.obstacles) {
      if (tensor.starts_with(obstacle.layer + ".")) why = obstacle.reason;
    }
    fail("prune.removals_of", "expected indices that can be removed of dimension ", dim, " of '", tensor,
         "', got ", *wanted.begin(), ": ", why);
  }
  return result;
}

}  // namespace ulp::prune
