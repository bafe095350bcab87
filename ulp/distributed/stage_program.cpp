#include "ulp/distributed/stage_program.h"

#include <algorithm>
#include <unordered_map>

#include "ulp/distributed/subgraphs.h"
#include "ulp/graph/extract.h"

namespace ulp::distributed {

namespace {

using graph::Node;
using graph::Value;
using Values = std::vector<const Value*>;

/// The calls of each stage, with the views of attributes that they read.
std::vector<std::vector<const Node*>> calls_of(const graph::Graph& graph, const StagePlan& plan) {
  std::vector<std::vector<const Node*>> calls(plan.stages.size());
  size_t stage = 0;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call && node->kind() != Node::Kind::module) continue;
    if (stage + 1 < plan.stages.size() && node.get() == plan.stages[stage + 1].first) ++stage;
    if (!is_view_of_attribute(*node)) add_with_views(calls[stage], node.get());
  }
  return calls;
}

size_t place_in(const Values& values, const Value* value) {
  return static_cast<size_t>(std::ranges::find(values, value) - values.begin());
}

/// For each stage what comes from the one before; behind the last one the model's result.
std::vector<Values> crossing_of(const graph::Graph& graph, const std::vector<Border>& borders,
                                const std::vector<std::vector<const Node*>>& calls) {
  std::unordered_map<const Node*, size_t> stage_of;
  for (size_t s = 0; s < calls.size(); ++s) {
    for (const Node* node : calls[s])
      if (!is_view_of_attribute(*node)) stage_of[node] = s;
  }
  std::vector<Values> crossing(calls.size() + 1);
  const auto carry = [&](const Value* value, size_t to) {
    const auto made = stage_of.find(value->producer);
    if (made == stage_of.end()) return;  // an input of the model
    for (size_t s = made->second + 1; s <= to; ++s)
      if (place_in(crossing[s], value) == crossing[s].size()) crossing[s].push_back(value);
  };
  for (size_t s = 0; s < borders.size(); ++s)
    for (const Value* value : borders[s].inputs) carry(value, s);
  crossing.back().clear();
  carry(graph.output_node()->args.at(0).value, calls.size());
  return crossing;
}

}  // namespace

std::vector<StageProgram> stage_programs(const graph::GraphModule& model, const StagePlan& plan) {
  const graph::Graph& graph = model.graph();
  check_can_be_cut("distributed.Pipeline", graph);
  check_stages(graph, plan);
  const auto calls = calls_of(graph, plan);
  std::vector<Border> borders;
  for (const auto& own : calls) borders.push_back(border_of(graph, own));
  const std::vector<Values> crossing = crossing_of(graph, borders, calls);
  const std::vector<Value*> inputs = graph.inputs();
  const Values all_inputs(inputs.begin(), inputs.end());
  std::vector<StageProgram> programs;
  for (size_t s = 0; s < calls.size(); ++s) {
    StageProgram& program = programs.emplace_back();
    const auto extracted = graph::extract(graph, calls[s], borders[s].inputs, borders[s].results);
    program.module = std::make_shared<graph::GraphModule>(extracted.graph);
    program.module->train(model.is_training());
    program.received = crossing[s].size();
    const auto origin = [&](const Value* value) -> StageValue {
      if (const size_t at = place_in(crossing[s], value); at < crossing[s].size())
        return {StageValue::Origin::received, at};
      if (const size_t at = place_in(borders[s].results, value); at < borders[s].results.size())
        return {StageValue::Origin::made, at};
      return {StageValue::Origin::input, place_in(all_inputs, value)};
    };
    for (const Value* value : borders[s].inputs) program.inputs.push_back(origin(value));
    for (const Value* value : crossing[s + 1]) program.results.push_back(origin(value));
    for (const Value* value : crossing[s])
      program.passed_on.push_back(place_in(crossing[s + 1], value) < crossing[s + 1].size());
  }
  return programs;
}

}  // namespace ulp::distributed
