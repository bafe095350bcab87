#include "ulp/app/checkpointed.h"

#include <torch/nn/module.h>

#include <unordered_map>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/memory/checkpoint/costs.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::app {

namespace {

/// The nodes of a graph by their place, which is the same in every capture of a network.
class Places {
 public:
  explicit Places(const graph::Graph& graph) {
    for (const auto& node : graph.nodes()) {
      index_[node.get()] = nodes_.size();
      nodes_.push_back(node.get());
    }
  }
  size_t of(const graph::Node* node) const { return index_.at(node); }
  const graph::Node* at(size_t place) const { return nodes_.at(place); }

 private:
  std::vector<const graph::Node*> nodes_;
  std::unordered_map<const graph::Node*, size_t> index_;
};

/// A plan for the graph of the other capture.
memory::CheckpointPlan moved(const memory::CheckpointPlan& plan, const Places& from, const Places& to) {
  memory::CheckpointPlan result;
  for (const memory::Segment& segment : plan.segments) {
    memory::Segment& there = result.segments.emplace_back(
        memory::Segment{.first = to.at(from.of(segment.first)), .last = to.at(from.of(segment.last))});
    for (const graph::Value* value : segment.kept)
      there.kept.push_back(to.at(from.of(value->producer))->output(static_cast<size_t>(value->index)));
    for (const graph::Node* node : segment.kept_inner) there.kept_inner.push_back(to.at(from.of(node)));
  }
  return result;
}

std::shared_ptr<graph::GraphModule> graph_of_network(const Network& network, const ModelSpec& spec) {
  return std::static_pointer_cast<graph::GraphModule>(captured(network, spec).module);
}

}  // namespace

struct CheckpointChoice::State {
  std::shared_ptr<graph::GraphModule> module;
  memory::CheckpointPlan plan = {};
};

CheckpointChoice::CheckpointChoice(const Network& network, const ModelSpec& spec,
                                   const train::TaskBatch& batch, const amp::Precision& precision,
                                   double share) {
  if (!(share > 0 && share < 1)) fail("app.CheckpointChoice", "expected a share in (0, 1), got ", share);
  auto state = std::make_shared<State>(State{.module = graph_of_network(network, spec)});
  amp::apply_precision(*state->module, precision);
  state->module->train();
  const auto guard = amp::autocast_for(precision, at::kCPU);
  const memory::Costs costs =
      memory::measure_costs(*state->module, {amp::cast_input(precision, batch.inputs)});
  const graph::Graph& graph = state->module->graph();
  const auto bytes =
      static_cast<int64_t>(share * static_cast<double>(memory::peak_without_plan(graph, costs)));
  state->plan = memory::plan_for_budget(graph, costs, bytes);
  state_ = std::move(state);
}

CheckpointChoice::~CheckpointChoice() = default;

Network CheckpointChoice::apply(const Network& network, const ModelSpec& spec) const {
  const std::shared_ptr<graph::GraphModule> module = graph_of_network(network, spec);
  memory::checkpoint(*module, moved(state_->plan, Places(state_->module->graph()), Places(module->graph())));
  return {module, [module](const train::TaskBatch& batch) { return module->forward(batch.inputs); }};
}

}  // namespace ulp::app
