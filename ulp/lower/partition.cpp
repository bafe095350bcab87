#include "ulp/lower/partition.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ulp/graph/describe.h"
#include "ulp/graph/mutated_buffers.h"

namespace ulp::lowering {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

bool computes(const Node& node) {
  return node.kind() == Node::Kind::call || node.kind() == Node::Kind::module;
}

void gather_values(const Argument& argument, std::vector<const Value*>& values) {
  if (argument.is_value()) values.push_back(argument.value);
  for (const Argument& item : argument.items) gather_values(item, values);
}

class Partitioner {
 public:
  Partitioner(const Graph& graph, const std::unordered_set<const Node*>& foreign)
      : graph_(graph), foreign_(foreign), written_(graph) {
    int index = 0;
    for (const auto& node : graph.nodes()) order_[node.get()] = index++;
  }

  std::vector<Cut> run() {
    for (const auto& node : graph_.nodes()) place(*node);
    for (auto& [piece, nodes] : pieces_) add_followers(nodes);
    for (const Value* value : result_values(graph_)) take_result(value);
    std::vector<Cut> cuts;
    for (auto& [piece, nodes] : pieces_) cuts.push_back(cut(piece, nodes));
    add_results(cuts);
    return cuts;
  }

 private:
  using Nodes = std::unordered_set<const Node*>;

  /// Engine pieces have even numbers, LibTorch's odd ones.
  bool is_foreign(const Node& node) const {
    return node.kind() == Node::Kind::module || foreign_.contains(&node) || written_.touches(node);
  }

  bool keeps_its_place(const Node& node) const { return node.has_effect() || written_.touches(node); }

  /// Runs wherever its result is read.
  bool follows_its_readers(const Node& node) const {
    if (node.kind() == Node::Kind::attribute) return true;
    if (node.kind() != Node::Kind::call || keeps_its_place(node)) return false;
    return node.is("ulp::quantize") || node.is("ulp::dequantize") || graph::from_attributes(node);
  }

  void place(const Node& node) {
    if (!computes(node)) return;
    int earliest = keeps_its_place(node) ? last_effect_ : 0;
    for (const Value* value : node.reads()) earliest = std::max(earliest, piece_of(value));
    if (follows_its_readers(node)) {
      base_[&node] = earliest;
      return;
    }
    const int piece = earliest + ((earliest % 2 == 1) != is_foreign(node) ? 1 : 0);
    base_[&node] = piece;
    pieces_[piece].insert(&node);
    if (keeps_its_place(node)) last_effect_ = piece;
  }

  /// The first piece in which a value is known.
  int piece_of(const Value* value) const {
    const auto at = base_.find(value->producer);
    return at == base_.end() ? 0 : at->second;
  }

  void add_followers(Nodes& nodes) const {
    std::vector<const Node*> open(nodes.begin(), nodes.end());
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Value* value : node->reads()) {
        const Node* producer = value->producer;
        if (!computes(*producer) || !follows_its_readers(*producer)) continue;
        if (nodes.insert(producer).second) open.push_back(producer);
      }
    }
  }

  /// A result that follows its readers is made where what it reads is.
  void take_result(const Value* value) {
    const Node* producer = value->producer;
    if (!computes(*producer) || !follows_its_readers(*producer)) return;
    const int base = base_.at(producer);
    Nodes& nodes = pieces_[base % 2 == 0 && is_foreign(*producer) ? base + 1 : base];
    nodes.insert(producer);
    add_followers(nodes);
  }

  Cut cut(int piece, const Nodes& nodes) {
    Cut cut{.foreign = piece % 2 == 1, .nodes = {nodes.begin(), nodes.end()}, .inputs = {}, .results = {}};
    std::ranges::sort(cut.nodes, {}, [&](const Node* node) { return order_.at(node); });
    for (const Node* node : cut.nodes) {
      for (const Value* value : node->reads()) {
        const Node* producer = value->producer;
        if (producer->kind() == Node::Kind::attribute || nodes.contains(producer)) continue;
        if (std::ranges::find(cut.inputs, value) == cut.inputs.end()) cut.inputs.push_back(value);
      }
    }
    return cut;
  }

  /// What other pieces and the caller read; each value leaves the first piece that makes it.
  void add_results(std::vector<Cut>& cuts) const {
    std::vector<const Value*> wanted = result_values(graph_);
    for (const Cut& cut : cuts) wanted.insert(wanted.end(), cut.inputs.begin(), cut.inputs.end());
    std::unordered_set<const Value*> done;
    for (const Value* value : wanted) {
      if (!computes(*value->producer) || !done.insert(value).second) continue;
      const auto maker = std::ranges::find_if(cuts, [&](const Cut& cut) {
        return std::ranges::find(cut.nodes, value->producer) != cut.nodes.end();
      });
      maker->results.push_back(value);
    }
  }

  const Graph& graph_;
  const std::unordered_set<const Node*>& foreign_;
  graph::WrittenState written_;
  std::unordered_map<const Node*, int> order_, base_;
  std::map<int, Nodes> pieces_;
  int last_effect_ = 0;
};

}  // namespace

std::vector<const Value*> result_values(const Graph& graph) {
  std::vector<const Value*> values;
  for (const Argument& argument : graph.output_node()->args) gather_values(argument, values);
  return values;
}

std::vector<Cut> partition(const Graph& graph, const std::unordered_set<const Node*>& foreign) {
  return Partitioner(graph, foreign).run();
}

}  // namespace ulp::lowering
