#include "ulp/graph/passes/fold_masks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace ulp::graph {
namespace {

/// What the node computes, as a parameter of its own.
at::Tensor masked_parameter(const Node& node, const at::Tensor& parameter, const at::Tensor& mask) {
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> stack = {parameter.detach(), mask};
  for (size_t i = stack.size(); i < node.args.size(); ++i) stack.push_back(node.args[i].literal);
  c10::Dispatcher::singleton().findSchemaOrThrow("ulp::apply_mask", "").callBoxed(stack);
  return stack.at(0).toTensor().detach().set_requires_grad(parameter.requires_grad());
}

}  // namespace

PassReport fold_masks(Graph& graph) {
  PassReport report{"fold_masks", {}, {}};
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) {
    if (node->is("ulp::apply_mask")) nodes.push_back(node.get());
  }
  for (Node* node : nodes) {
    const at::Tensor parameter = graph.attribute_tensor(node->args[0].value);
    const at::Tensor mask = graph.attribute_tensor(node->args[1].value);
    if (!parameter.defined() || !mask.defined()) {
      report.near_misses.push_back(node->name() + " not folded: it masks no stored parameter");
      continue;
    }
    Value* value = node->args[0].value;
    const std::string name = value->producer->target(), mask_name = node->args[1].value->producer->target();
    const at::Tensor masked = masked_parameter(*node, parameter, mask);
    graph.replace_uses(node->output(), value);
    graph.erase(node);
    std::vector<std::string> names;
    for (const auto& [key, attribute] : graph.attributes()) {
      if (attribute.tensor.is_same(parameter)) names.push_back(key);
    }
    for (const std::string& each : names)
      graph.set_attribute(each, {graph.find_attribute(each)->kind, masked});
    if (graph.users(graph.attribute(mask_name)).empty()) graph.erase_attribute(mask_name);
    report.changes.push_back(mask_name + " multiplied into " + name);
  }
  return report;
}

}  // namespace ulp::graph
