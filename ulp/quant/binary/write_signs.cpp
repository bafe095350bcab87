#include "ulp/quant/binary/write_signs.h"

#include <torch/types.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/graph/extract.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/binary/binary_modules.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

/// The module of a node, where it is one of this kind.
template <typename Module>
const Module* module_of(const Graph& graph, const Node& node) {
  if (node.kind() != Node::Kind::module) return nullptr;
  return dynamic_cast<const Module*>(graph.modules().at(node.target()).get());
}

bool reads_attribute(const Graph& graph, const Node& node) {
  return !node.args.empty() && node.args[0].is_value() &&
         graph.attribute_tensor(node.args[0].value).defined();
}

bool takes_signs(const Graph& graph, const Node& node) {
  if (node.is("ulp::binarize")) return reads_attribute(graph, node);
  const auto* weight = module_of<WeightSigns>(graph, node);
  return weight != nullptr && !weight->ternary();
}

class SignWriter {
 public:
  explicit SignWriter(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node*> nodes;
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::module || node->kind() == Node::Kind::call) nodes.push_back(node.get());
    }
    for (Node* node : nodes) {
      if (takes_signs(graph_, *node) || module_of<WeightSigns>(graph_, *node) != nullptr)
        weights_.insert(node->args[0].value);
    }
    for (Node* node : nodes) visit(*node);
    graph_.remove_dead(/*attributes=*/true);
  }

 private:
  void visit(Node& node) {
    if (const auto* signs = module_of<ActivationSigns>(graph_, node)) {
      return replace(node, signs_of(node, *signs));
    }
    if (module_of<ActivationScale>(graph_, node) != nullptr) return replace(node, node.args[0].value);
    if (takes_signs(graph_, node)) return replace(node, packed(node));
    if (module_of<WeightSigns>(graph_, node) != nullptr) {
      const std::string name = node.args[0].value->producer->target();
      return replace(node, add(name + ".ternary", ternarize(graph_.attribute_tensor(node.args[0].value))));
    }
    if (node.kind() == Node::Kind::call && !node.has_effect() && is_of_weights(node))
      replace(node, stored(node));
  }

  Value* signs_of(Node& node, const ActivationSigns& module) {
    Value* signs =
        call("ulp::binarize", node, {node.args[0], c10::IValue(std::string(enum_name(module.gradient())))});
    if (module.sides().empty()) return signs;
    signs->meta = node.args[0].value->meta;
    return call("aten::constant_pad_nd", node, {signs, c10::IValue(module.sides()), c10::IValue(1.0)});
  }

  /// Reads nothing but attributes, a weight or what was made of weights among them.
  bool is_of_weights(const Node& node) const {
    const std::vector<Value*> reads = node.reads();
    const auto fixed = [&](const Value* value) { return graph_.attribute_tensor(value).defined(); };
    return std::ranges::all_of(reads, fixed) &&
           std::ranges::any_of(reads, [&](const Value* value) { return weights_.contains(value); });
  }

  Value* call(const char* target, Node& node, std::vector<Argument> args) {
    Node* made = graph_.call(target, std::move(args), &node);
    made->scope = node.scope;
    return made->output();
  }

  Value* packed(Node& node) {
    const std::string name = node.args[0].value->producer->target();
    const at::Tensor latent = graph_.attribute_tensor(node.args[0].value);
    Value* bits = add(name + ".signs", pack_signs(latent));
    return call("ulp::unpack_signs", node, {bits, c10::IValue(latent.sizes().vec())});
  }

  /// What the node computes in eval mode.
  Value* stored(Node& node) {
    graph::GraphModule alone(graph::extract(graph_, {&node}, {}, {node.output()}).graph);
    alone.eval();
    const at::Tensor result = alone.forward_all({}).at(0).detach().clone();
    Value* value = add(node.name() + ".folded", result);
    weights_.insert(value);
    return value;
  }

  Value* add(const std::string& wish, const at::Tensor& tensor) {
    std::string name = wish;
    for (int i = 2; graph_.find_attribute(name) != nullptr; ++i) name = wish + "_" + std::to_string(i);
    graph_.set_attribute(name, {graph::Attribute::Kind::buffer, tensor});
    return graph_.attribute(name);
  }

  void replace(Node& node, Value* made) {
    if (!made->meta) made->meta = node.output()->meta;
    graph_.replace_uses(node.output(), made);
    graph_.erase(&node);
  }

  Graph& graph_;
  std::unordered_set<const Value*> weights_;  // latent ones, and what was made of them
};

}  // namespace

void write_signs(Graph& graph) {
  const at::NoGradGuard no_grad;
  SignWriter(graph).run();
}

std::vector<std::string> latent_attributes(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) {
    if (!takes_signs(graph, *node)) continue;
    const std::string& name = node->args[0].value->producer->target();
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace ulp::quant
