#include "ulp/distributed/segments.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ulp/distributed/subgraphs.h"
#include "ulp/graph/extract.h"

namespace ulp::distributed {

namespace {

using graph::Node;
using graph::Value;

constexpr const char* kSegmentsWhere = "distributed.Segments";

}  // namespace

Segments::Segments(const graph::GraphModule& model, int64_t bytes) : model_(model) {
  const graph::Graph& graph = model.graph();
  check_can_be_cut(kSegmentsWhere, graph);
  for (const Value* value : graph.inputs()) inputs_.push_back(slot(value));
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<const Node*> nodes;
  int64_t fresh = 0;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call && node->kind() != Node::Kind::module) continue;
    if (is_view_of_attribute(*node)) continue;
    const size_t known = nodes.size();
    add_with_views(nodes, node.get());
    for (size_t i = known; i < nodes.size(); ++i) {
      for (const Value* value : nodes[i]->reads()) {
        const at::Tensor parameter = trained_parameter(graph, value);
        if (parameter.defined() && seen.insert(parameter.unsafeGetTensorImpl()).second)
          fresh += static_cast<int64_t>(parameter.nbytes());
      }
    }
    if (fresh < bytes) continue;
    add(std::exchange(nodes, {}));
    fresh = 0;
  }
  if (!nodes.empty()) add(nodes);
  result_ = slot(graph.output_node()->args.at(0).value);
  free_early();
}

size_t Segments::slot(const Value* value) {
  const auto at = std::ranges::find(values_, value) - values_.begin();
  if (at == static_cast<ptrdiff_t>(values_.size())) values_.push_back(value);
  return static_cast<size_t>(at);
}

void Segments::add(const std::vector<const Node*>& nodes) {
  const graph::Graph& graph = model_.graph();
  const Border border = border_of(graph, nodes);
  Segment& segment = segments_.emplace_back();
  for (const Value* value : border.inputs) segment.inputs.push_back(slot(value));
  for (const Value* value : border.results) segment.results.push_back(slot(value));
  segment.parameters = trained_parameters(graph, nodes);
  segment.module =
      std::make_shared<graph::GraphModule>(graph::extract(graph, nodes, border.inputs, border.results).graph);
}

/// Each value goes after the last piece that reads it.
void Segments::free_early() {
  std::vector<bool> kept(values_.size(), false);
  kept[result_] = true;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    for (const size_t slot : segment->inputs) {
      if (!kept[slot]) segment->last_reads.push_back(slot);
      kept[slot] = true;
    }
  }
}

at::Tensor Segments::run(const std::vector<at::Tensor>& inputs, const Before& before,
                         const After& after) const {
  model_.check_inputs(inputs);
  std::vector<at::Tensor> values(values_.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[inputs_[i]] = inputs[i];
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    before(s);
    std::vector<at::Tensor> reads;
    for (const size_t slot : segment.inputs) reads.push_back(values[slot]);
    segment.module->train(model_.is_training());
    const std::vector<at::Tensor> results = segment.module->forward_all(reads);
    after(s, results);
    for (size_t i = 0; i < results.size(); ++i) values[segment.results[i]] = results[i];
    for (const size_t slot : segment.last_reads) values[slot].reset();
  }
  return values[result_];
}

}  // namespace ulp::distributed
