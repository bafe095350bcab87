#include "ulp/prune/structured/activation_importance.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/prune/structured/normalize.h"
#include "ulp/prune/structured/rules/rules.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// A dimension of a value that layers read, and which unit each of its positions is of; -1 for none.
struct UnitReading {
  std::string value;
  size_t dim = 0;
  std::vector<int64_t> units;  ///< numbered through all groups
};

/// Numbers of the units of all groups by their class.
std::map<Position, int64_t> units_by_class(const Tracker& tracker, const Groups& groups) {
  std::map<Position, int64_t> found;
  int64_t first = 0;
  for (const Group& group : groups.groups) {
    const Member& member = group.members.at(0);
    const auto layout = tracker.attributes().find(member.tensor);
    if (layout == tracker.attributes().end() || member.dim >= layout->second.rank())
      fail("prune.activation_importance", "expected the groups of this graph, got '", member.tensor,
           "', which it has not");
    for (size_t u = 0; u < member.indices.size(); ++u)
      found[tracker.axes().find(layout->second.dims[member.dim].at(member.indices[u].at(0)))] =
          first + static_cast<int64_t>(u);
    first += group.units;
  }
  return found;
}

std::vector<UnitReading> readings_of(const Graph& graph, const Groups& groups) {
  const Tracker tracker(graph, groups.options);
  const std::map<Position, int64_t> units = units_by_class(tracker, groups);
  std::vector<UnitReading> found;
  std::map<std::string, char> seen;
  for (const auto& node : graph.nodes()) {
    const bool layer =
        node->kind() == Node::Kind::call && !node->train_only &&
        std::ranges::any_of(layer_rules(), [&](const Rule& rule) { return rule.op == node->op(); });
    if (!layer) continue;
    for (const Value* value : node->reads()) {
      if (graph::from_attributes(*value->producer) || seen[value->name]++ > 0) continue;
      const Layout& layout = tracker.layout(value);
      for (size_t d = 0; d < layout.dims.size(); ++d) {
        UnitReading reading{value->name, d, {}};
        for (const Position position : layout.dims[d]) {
          const auto unit = units.find(tracker.axes().find(position));
          reading.units.push_back(unit == units.end() ? -1 : unit->second);
        }
        if (std::ranges::any_of(reading.units, [](int64_t unit) { return unit >= 0; }))
          found.push_back(reading);
      }
    }
  }
  return found;
}

/// A copy of the graph that returns the values.
graph::GraphModule probe_of(const Graph& graph, const std::vector<UnitReading>& readings) {
  const std::shared_ptr<Graph> copy = graph.clone();
  std::map<std::string, Value*> by_name;
  for (const auto& node : copy->nodes()) {
    for (const auto& value : node->outputs()) by_name[value->name] = value.get();
  }
  std::vector<Argument> results;
  for (const UnitReading& reading : readings) results.emplace_back(by_name.at(reading.value));
  copy->set_output(Argument::tuple(std::move(results)));
  copy->remove_dead();
  return graph::GraphModule(copy);
}

/// A number for each position of the dimension; undefined where the score has no meaning.
at::Tensor measure(const at::Tensor& value, size_t dim, size_t positions, ActivationScore score) {
  // A dimension with the batch in it has the positions of one item inside.
  const at::Tensor first = value.movedim(static_cast<int64_t>(dim), 0).to(at::kDouble);
  if (score == ActivationScore::rank) {
    if (value.dim() != 4 || dim != 1) return {};
    return at::linalg_matrix_rank(first).to(at::kDouble).mean(1);
  }
  const at::Tensor rows = first.reshape({-1, static_cast<int64_t>(positions), first.numel() / first.size(0)});
  const at::Tensor counted = score == ActivationScore::apoz ? rows.ne(0).to(at::kDouble) : rows.abs();
  return counted.mean(at::IntArrayRef({0, 2}));
}

}  // namespace

Importance activation_importance(const graph::GraphModule& module, const Groups& groups,
                                 ActivationScore score, const std::vector<std::vector<at::Tensor>>& batches,
                                 Normalization normalization) {
  if (batches.empty()) fail("prune.activation_importance", "expected batches to run on, got none");
  const torch::NoGradGuard no_grad;
  const std::vector<UnitReading> readings = readings_of(module.graph(), groups);
  int64_t total = 0;
  for (const Group& group : groups.groups) total += group.units;
  std::vector<double> sums(static_cast<size_t>(total)), weights(static_cast<size_t>(total));
  graph::GraphModule probe = probe_of(module.graph(), readings);
  probe.eval();
  for (const std::vector<at::Tensor>& inputs : batches) {
    const std::vector<at::Tensor> values = probe.forward_all(inputs);
    for (size_t i = 0; i < readings.size(); ++i) {
      const std::vector<int64_t>& units = readings[i].units;
      at::Tensor scores = measure(values.at(i), readings[i].dim, units.size(), score);
      if (!scores.defined()) continue;
      scores = scores.cpu().contiguous();
      const auto items = static_cast<double>(inputs.empty() || inputs[0].dim() == 0 ? 1 : inputs[0].size(0));
      for (size_t p = 0; p < units.size(); ++p) {
        if (units[p] < 0) continue;
        sums[static_cast<size_t>(units[p])] += items * scores.data_ptr<double>()[p];
        weights[static_cast<size_t>(units[p])] += items;
      }
    }
  }
  Importance result;
  size_t next = 0;
  for (const Group& group : groups.groups) {
    std::vector<double>& made = result.emplace_back();
    for (int64_t u = 0; u < group.units; ++u, ++next)
      made.push_back(weights[next] > 0 ? sums[next] / weights[next]
                                       : std::numeric_limits<double>::infinity());
    normalize(made, normalization);
  }
  return result;
}

}  // namespace ulp::prune
