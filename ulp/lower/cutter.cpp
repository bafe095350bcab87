#include "ulp/lower/cutter.h"

#include <unordered_set>

namespace ulp::lowering {

using graph::Graph;
using graph::Node;

Cutter::Cutter(const Graph& graph, const LowerOptions& options) : graph_(graph), options_(options) {
  do {
    refused_ = false;
    std::unordered_set<const Node*> nodes;
    for (const auto& [node, reason] : foreign_) nodes.insert(node);
    cuts_ = partition(graph_, nodes);
    plans_.clear();
    for (const Cut& cut : cuts_) plans_.push_back(cut.foreign ? runtime::Plan{} : lower_cut(cut));
  } while (refused_);
}

runtime::Plan Cutter::lower_cut(const Cut& cut) {
  const graph::Extract part = graph::extract(graph_, cut.nodes, cut.inputs, cut.results);
  graph::PassReport unread;
  Lowered lowered = lower_prepared(*part.graph, options_, unread);
  const size_t before = foreign_.size();
  for (const Refusal& refusal : lowered.refusals) take_out(part, refusal);
  if (!lowered.refusals.empty() && foreign_.size() == before) {
    for (const Node* node : cut.nodes) foreign_.emplace(node, lowered.refusals.front().reason);
  }
  refused_ = refused_ || !lowered.refusals.empty();
  return std::move(lowered.plan);
}

/// The node itself; the readers of an input that no engine takes; the maker of a result that cannot leave.
void Cutter::take_out(const graph::Extract& part, const Refusal& refusal) {
  const Node* node = refusal.maker ? refusal.maker : refusal.node;
  if (node->kind() != Node::Kind::input) return add(part, node, refusal.reason);
  for (const Node* reader : part.graph->users(node->output())) {
    if (reader->kind() != Node::Kind::output) add(part, reader, refusal.reason);
  }
}

void Cutter::add(const graph::Extract& part, const Node* node, const std::string& reason) {
  if (const auto origin = part.origins.find(node); origin != part.origins.end()) {
    foreign_.emplace(origin->second, reason);
  }
}

}  // namespace ulp::lowering
