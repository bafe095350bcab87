#include "ulp/app/train/checkpointed.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/base/anonymous_file.h"
#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/costs.h"
#include "ulp/memory/checkpoint/plan.h"
#include "ulp/train/learning.h"
#include "ulp/train/trainer.h"

namespace ulp::app {

namespace {

constexpr const char* kCheckpointChoiceWhere = "app.CheckpointChoice";

/// Segments by the places of their nodes, which are the same in every capture of a network.
struct PlacedSegment {
  size_t first = 0, last = 0;
  std::vector<std::pair<size_t, size_t>> kept = {};  ///< node and output
  std::vector<size_t> kept_inner = {};
};

std::vector<PlacedSegment> places_of(const graph::Graph& graph, const memory::CheckpointPlan& plan) {
  std::unordered_map<const graph::Node*, size_t> place;
  for (const auto& node : graph.nodes()) place.emplace(node.get(), place.size());
  std::vector<PlacedSegment> placed;
  for (const memory::Segment& segment : plan.segments) {
    PlacedSegment& one = placed.emplace_back(PlacedSegment{place.at(segment.first), place.at(segment.last)});
    for (const graph::Value* value : segment.kept)
      one.kept.emplace_back(place.at(value->producer), static_cast<size_t>(value->index));
    for (const graph::Node* node : segment.kept_inner) one.kept_inner.push_back(place.at(node));
  }
  return placed;
}

std::vector<memory::Segment> segments_of(const graph::Graph& graph,
                                         const std::vector<PlacedSegment>& placed) {
  std::vector<const graph::Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  std::vector<memory::Segment> segments;
  for (const PlacedSegment& one : placed) {
    memory::Segment& segment =
        segments.emplace_back(memory::Segment{.first = nodes.at(one.first), .last = nodes.at(one.last)});
    for (const auto& [node, output] : one.kept) segment.kept.push_back(nodes.at(node)->output(output));
    for (const size_t node : one.kept_inner) segment.kept_inner.push_back(nodes.at(node));
  }
  return segments;
}

/// The costs of more samples, from those of two numbers of them: bytes are linear in that.
class LinearCosts {
 public:
  LinearCosts(memory::Costs few, memory::Costs more, double few_samples, double more_samples)
      : few_(std::move(few)),
        more_(std::move(more)),
        few_samples_(few_samples),
        more_samples_(more_samples) {}

  memory::Costs at(int64_t samples) const {
    memory::Costs costs = more_;
    const auto wanted = static_cast<double>(samples);
    for (auto& [value, bytes] : costs.bytes) {
      const auto found = few_.bytes.find(value);
      if (found != few_.bytes.end()) bytes = grown(found->second, bytes, wanted);
    }
    for (auto& [node, cost] : costs.nodes) {
      const auto found = few_.nodes.find(node);
      if (found != few_.nodes.end())
        cost.inner_bytes = grown(found->second.inner_bytes, cost.inner_bytes, wanted);
      cost.seconds *= wanted / more_samples_;
      cost.inner_seconds *= wanted / more_samples_;
    }
    return costs;
  }

 private:
  int64_t grown(int64_t few, int64_t more, double samples) const {
    const double each = static_cast<double>(more - few) / (more_samples_ - few_samples_);
    return std::max<int64_t>(0, more + static_cast<int64_t>(each * (samples - more_samples_)));
  }
  memory::Costs few_, more_;
  double few_samples_, more_samples_;
};

constexpr int64_t kFew = 2, kMore = 4;

memory::Costs costs_of(const graph::GraphModule& model, const amp::Precision& precision,
                       const at::Tensor& inputs, int64_t samples) {
  const auto guard = amp::autocast_for(precision, at::kCPU);
  const auto measured = [&](int64_t count) {
    return memory::measure_costs(model, {amp::cast_input(precision, inputs.narrow(0, 0, count))});
  };
  if (samples <= kMore) return measured(samples);
  return LinearCosts(measured(kFew), measured(kMore), kFew, kMore).at(samples);
}

bool has_budget(const MemoryPlan& plan, const std::optional<double>& share) {
  return share || plan.checkpoint_activations.kind == CheckpointRule::Kind::bytes;
}

}  // namespace

struct CheckpointChoice::State {
  MemoryPlan plan;
  uint64_t seed = 0;
  bool has_budget = false;
  std::vector<PlacedSegment> segments = {};  ///< of a budget
  size_t nodes = 0;                          ///< of the graph that they are of

  memory::CheckpointPlan plan_of(const graph::Graph& graph) const {
    memory::CheckpointPlan found;
    if (has_budget && nodes != graph.nodes().size())
      fail(kCheckpointChoiceWhere, "expected a network of ", nodes, " nodes, as that of the plan, got ",
           graph.nodes().size());
    if (has_budget)
      found.segments = segments_of(graph, segments);
    else if (plan.checkpoint_activations.kind == CheckpointRule::Kind::sqrt)
      found = memory::plan_sqrt(graph);
    else if (plan.checkpoint_activations.kind == CheckpointRule::Kind::every)
      found = memory::plan_every(graph, plan.checkpoint_activations.number);
    found.saved = plan.saved(seed);
    return found;
  }
};

CheckpointChoice::CheckpointChoice(const MakeTask& make, const train::TrainOptions& options,
                                   memory::RunSize size, const MemoryPlan& plan,
                                   std::optional<double> share) {
  if (share && !(*share > 0 && *share < 1))
    fail(kCheckpointChoiceWhere, "expected a share in (0, 1), got ", *share);
  plan.validate();
  auto state = std::make_shared<State>(
      State{.plan = plan, .seed = options.seed, .has_budget = has_budget(plan, share)});
  state_ = state;
  if (!state->has_budget) return;
  train::TrainOptions small = options;
  small.batch = std::min(size.batch, kMore);
  train::Task task = make({.batch = small.batch, .length = size.length});
  const at::Tensor inputs = train::example_batch(*task.batches).inputs;
  // A trainer makes of it what is trained.
  task.activations = [&](const graph::GraphModule& model) {
    const memory::Costs costs = costs_of(model, options.resolved_precision(), inputs, size.batch);
    const graph::Graph& graph = model.graph();
    const int64_t bytes =
        share ? static_cast<int64_t>(*share * static_cast<double>(memory::peak_without_plan(graph, costs)))
              : plan.checkpoint_activations.number;
    state->nodes = graph.nodes().size();
    state->segments = places_of(graph, memory::plan_for_budget(graph, costs, bytes));
    return memory::CheckpointPlan{};
  };
  const train::Trainer finds(std::move(task), small);
}

CheckpointChoice::~CheckpointChoice() = default;

void CheckpointChoice::apply(train::Task& task) const {
  if (state_->has_budget || state_->plan.plans_activations())
    task.activations = [state = state_](const graph::GraphModule& model) {
      return state->plan_of(model.graph());
    };
  if (state_->plan.offload_optimizer == memory::StorageLocation::file)
    task.offload.state_folder = usual_folder(state_->plan.offload_folder);
}

}  // namespace ulp::app
