#include "ulp/lower/partition_lowering.h"

#include <unordered_set>

#include "ulp/base/error.h"

namespace ulp::lowering {

using graph::Graph;
using graph::Node;

namespace {

bool makes_integers(const Node& node) {
  if (node.kind() != Node::Kind::call || node.outputs().empty() || !node.output()->meta) return false;
  return at::isIntegralType(node.output()->meta->dtype, /*includeBool=*/false);
}

}  // namespace

PartitionLowering::PartitionLowering(const Graph& graph, const LowerOptions& options)
    : graph_(graph), options_(options) {
  do {
    refused_ = false;
    std::unordered_set<const Node*> nodes;
    for (const auto& [node, reason] : foreign_) nodes.insert(node);
    cuts_ = partition(graph_, nodes);
    plans_.clear();
    for (const Cut& cut : cuts_) plans_.push_back(cut.foreign ? runtime::Plan{} : lower_cut(cut));
  } while (refused_);
}

runtime::Plan PartitionLowering::lower_cut(const Cut& cut) {
  const graph::Extract part = graph::extract(graph_, cut.nodes, cut.inputs, cut.results);
  Lowered lowered;
  try {
    graph::PassReport unread;
    lowered = lower_prepared(*part.graph, options_, unread);
  } catch (const Error& error) {  // a plan that is none: sizes of 0, for one
    for (const Node* node : cut.nodes) foreign_.emplace(node, error.what());
    refused_ = true;
    return {};
  }
  const size_t before = foreign_.size();
  for (const Refusal& refusal : lowered.refusals) take_out(part, refusal);
  if (!lowered.refusals.empty() && foreign_.size() == before) {
    for (const Node* node : cut.nodes) foreign_.emplace(node, lowered.refusals.front().reason);
  }
  refused_ = refused_ || !lowered.refusals.empty();
  return std::move(lowered.plan);
}

/// The node itself; the readers of an input that no engine takes; the maker of a result that cannot leave.
void PartitionLowering::take_out(const graph::Extract& part, const Refusal& refusal) {
  const Node* node = refusal.maker ? refusal.maker : refusal.node;
  if (node->kind() != Node::Kind::input) return add(part, node, refusal.reason);
  for (const Node* reader : part.graph->users(node->output())) {
    if (reader->kind() != Node::Kind::output) add(part, reader, refusal.reason);
  }
}

/// With integers go the integers that they are made of: what is in f32 in between has lost its last digits.
void PartitionLowering::add(const graph::Extract& part, const Node* node, const std::string& reason) {
  const auto origin = part.origins.find(node);
  if (origin == part.origins.end() || !foreign_.emplace(origin->second, reason).second) return;
  if (!makes_integers(*node)) return;
  for (const graph::Value* read : node->reads()) {
    if (makes_integers(*read->producer)) add(part, read->producer, reason);
  }
}

}  // namespace ulp::lowering
