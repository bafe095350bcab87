#include "ulp/graph/fusion/missed_fusions.h"

#include <unordered_map>
#include <unordered_set>

#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {
namespace {

bool is_pool(const Node& node) {
  return is_any(node, {"aten::max_pool2d", "aten::avg_pool2d", "aten::adaptive_avg_pool2d", "aten::mean"});
}

/// What people expect to be fused, whether the table has it or not.
bool follows(const Node& node) {
  return node.is("aten::add") || is_pool(node) || activation_of(node) || clamp_bounds(node) ||
         is_any(node, {"aten::silu", "aten::sigmoid", "aten::leaky_relu", "aten::elu"});
}

class NearMissSearch {
 public:
  NearMissSearch(const Graph& graph, const FusionPolicy& policy, const std::vector<Chain>& chains)
      : graph_(graph), policy_(policy) {
    for (const Chain& chain : chains) {
      by_last_.emplace(chain.last(), &chain);
      for (const Node* part : {chain.add, chain.activation}) {
        if (part) inside_.insert(part);
      }
    }
  }

  std::vector<NearMiss> run() const {
    std::vector<NearMiss> found;
    for (const auto& node : graph_.nodes()) {
      if (node->kind() != Node::Kind::call || inside_.contains(node.get()) || !follows(*node)) continue;
      for (const Value* value : node->reads()) {
        const auto chain = by_last_.find(value->producer);
        if (chain == by_last_.end()) continue;
        std::string why = reason(*node, *value, *chain->second);
        if (!why.empty()) found.push_back({node.get(), chain->second->op, std::move(why)});
      }
    }
    return found;
  }

 private:
  std::string reason(const Node& node, const Value& value, const Chain& before) const {
    if (is_pool(node)) return "no step of the engine ends in a pooling";
    for (const Node* reader : graph_.users(&value)) {
      if (reader == &node) continue;
      return reader->kind() == Node::Kind::output ? "its result is a result of the model"
                                                  : "its result is also read by " + describe(*reader);
    }
    if (node.is("aten::add")) return reason_of_add(node, value, before);
    if (before.activation) return "that step has an activation already";
    return "no step of this kind ends in " + std::string(node.op());
  }

  std::string reason_of_add(const Node& node, const Value& value, const Chain& before) const {
    const std::string refusal = residual_refusal(graph_, policy_, node, &value);
    if (!refusal.empty()) return refusal;
    if (!policy_.is_layer(*before.op)) return "an add takes no other add";
    if (before.add) return "that step has an add already";
    return before.activation ? "that step ends in an activation" : "it reads that result twice";
  }

  const Graph& graph_;
  const FusionPolicy& policy_;
  std::unordered_map<const Node*, const Chain*> by_last_;
  std::unordered_set<const Node*> inside_;
};

}  // namespace

std::string NearMiss::describe() const {
  return graph::describe(*node) + " not fused into " + graph::describe(*op) + ": " + reason;
}

std::vector<NearMiss> near_misses(const Graph& graph, const FusionPolicy& policy,
                                  const std::vector<Chain>& chains) {
  return NearMissSearch(graph, policy, chains).run();
}

}  // namespace ulp::graph
