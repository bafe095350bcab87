// SynFlow: Tanaka et al. 2020, "Pruning neural networks without any data by iteratively conserving synaptic
// flow".
#include <torch/autograd.h>

#include "ulp/base/error.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/prune/scores/score_parts.h"

namespace ulp::prune {
namespace {

using graph::Attribute;
using graph::Graph;

/// The graph with the absolute values of all parameters and floating-point buffers, in double: in fp32 the
/// products over many layers overflow. Tensors that are shared stay so.
std::shared_ptr<Graph> absolute(const Graph& graph) {
  const std::shared_ptr<Graph> copy = graph.clone();
  graph::fold_masks(*copy);
  std::vector<std::pair<at::Tensor, at::Tensor>> made;
  const auto replaced = [&](const Attribute& attribute) {
    for (const auto& [from, to] : made) {
      if (from.is_same(attribute.tensor)) return to;
    }
    at::Tensor wide = attribute.tensor.detach().to(at::kDouble);
    if (attribute.kind != Attribute::Kind::constant) wide = wide.abs();
    made.emplace_back(attribute.tensor, wide);
    return wide;
  };
  const auto attributes = copy->attributes();
  for (const auto& [name, attribute] : attributes) {
    if (!attribute.tensor.is_floating_point()) continue;
    at::Tensor tensor = replaced(attribute);
    if (attribute.kind == Attribute::Kind::parameter) tensor.set_requires_grad(true);
    copy->set_attribute(name, {attribute.kind, tensor});
  }
  return copy;
}

}  // namespace

Scores synflow_scores(const graph::GraphModule& module, const Names& names, const ScoreInputs& inputs) {
  const at::AutoGradMode with_gradients(true);
  graph::GraphModule linear(absolute(module.graph()));
  linear.eval();
  std::vector<at::Tensor> ones;
  for (const at::Tensor& input : inputs.inputs.front()) {
    if (!input.is_floating_point()) {
      fail("prune.synflow", "expected inputs of floating-point numbers, got ", input.dtype(),
           ": ones would be ids");
    }
    ones.push_back(at::ones(input.sizes(), input.options().dtype(at::kDouble)));
  }
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& output : linear.forward_all(ones)) sum = sum + output.sum();
  const Scores parameters = parameters_of(linear, names);
  const Scores gradients = torch::autograd::grad({sum}, parameters, {}, /*retain_graph=*/false,
                                                 /*create_graph=*/false, /*allow_unused=*/true);
  Scores made;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!gradients[i].defined())
      fail("prune.synflow", "expected parameters that the result depends on, got '", names[i], "'");
    made.push_back((gradients[i] * parameters[i]).detach().abs());
  }
  return made;
}

}  // namespace ulp::prune
