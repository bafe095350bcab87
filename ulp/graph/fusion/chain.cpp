#include "ulp/graph/fusion/chain.h"

#include <unordered_set>

#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/fusion/missed_fusions.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {
namespace {

Value* other_operand(const Node& add, const Value* one) {
  return add.args[0].value == one ? add.args[1].value : add.args[0].value;
}

class Matcher {
 public:
  Matcher(const Graph& graph, const FusionPolicy& policy) : graph_(graph), policy_(policy) {}

  /// Forwards: of two layers that meet in an add the first takes it, and an add that is met untaken is one of
  /// its own.
  std::vector<Chain> run() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() != Node::Kind::call || taken_.contains(node.get())) continue;
      if (policy_.is_layer(*node)) {
        grow_layer(node.get());
      } else if (add_refusal(policy_, *node).empty()) {
        finish({.op = node.get()});
      }
    }
    return std::move(chains_);
  }

 private:
  void grow_layer(Node* layer) {
    Chain chain{.op = layer};
    Node* next = only_reader(graph_, layer->output());
    if (next && !taken_.contains(next) && residual_refusal(graph_, policy_, *next, layer->output()).empty())
      chain.add = next;
    finish(chain);
  }

  void finish(Chain chain) {
    Node* next = only_reader(graph_, chain.result());
    const std::optional<Activation> activation = next ? activation_of(*next) : std::nullopt;
    if (activation && policy_.takes_activation(*chain.op, *activation)) {
      chain.activation = next;
      chain.kind = *activation;
    }
    for (const Node* part : {chain.op, chain.add, chain.activation}) {
      if (part) taken_.insert(part);
    }
    chains_.push_back(chain);
  }

  const Graph& graph_;
  const FusionPolicy& policy_;
  std::unordered_set<const Node*> taken_;
  std::vector<Chain> chains_;
};

}  // namespace

Value* Chain::residual() const {
  return add ? other_operand(*add, op->output()) : nullptr;
}

std::string Chain::describe() const {
  std::string text = label(*op);
  if (add) text += " + add";
  if (activation) text += std::string(" + ") + to_string(kind);
  return text;
}

std::string sum_obstacle(const Node& node) {
  if (node.target() != "aten::add.Tensor" || !node.args[0].is_value() || !node.args[1].is_value())
    return "it is not a sum of two tensors";
  if (number(node.arg("alpha")) != 1.0) return "its alpha is not 1";
  const auto &a = node.args[0].value->meta, &b = node.args[1].value->meta;
  if (!a || !b || a->sizes != b->sizes) return "its operands differ in shape";
  // Of integers the bits count: they wrap around, and f32 does not hold all of them.
  const auto whole = [](at::ScalarType type) { return at::isIntegralType(type, /*includeBool=*/true); };
  if (whole(a->dtype) && whole(b->dtype)) return "it adds integers";
  return "";
}

std::string add_refusal(const FusionPolicy& policy, const Node& add) {
  const std::string obstacle = sum_obstacle(add);
  return obstacle.empty() && policy.refuses_add ? policy.refuses_add(add) : obstacle;
}

std::string residual_refusal(const Graph& graph, const FusionPolicy& policy, const Node& add,
                             const Value* result) {
  const std::string refusal = add_refusal(policy, add);
  if (!refusal.empty()) return refusal;
  return graph.attribute_tensor(other_operand(add, result)).defined() ? "it adds a parameter" : "";
}

Fusion find_chains(const Graph& graph, const FusionPolicy& policy) {
  Fusion fusion{.chains = Matcher(graph, policy).run(), .near_misses = {}};
  fusion.near_misses = near_misses(graph, policy, fusion.chains);
  return fusion;
}

}  // namespace ulp::graph
