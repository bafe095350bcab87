// Scores from gradients of a loss.
#include <torch/autograd.h>

#include "ulp/base/error.h"
#include "ulp/prune/scores/score_parts.h"

namespace ulp::prune {
namespace {

/// Gradients of one batch's loss. `differentiable`: they have a graph of their own.
Scores gradients_of(graph::GraphModule& module, const Names& names, const ScoreInputs& inputs, int64_t batch,
                    bool differentiable) {
  constexpr const char* kWhere = "prune.compute_scores";
  const Scores parameters = parameters_of(module, names);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!parameters[i].requires_grad())
      fail(kWhere, "expected parameters that require gradients, got '", names[i], "', which does not");
  }
  const at::Tensor loss = inputs.loss(module, batch);
  if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad())
    fail(kWhere, "expected a loss of one number that depends on the parameters for batch ", batch);
  Scores gradients = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/differentiable,
                                           /*create_graph=*/differentiable, /*allow_unused=*/true);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!gradients[i].defined())
      fail(kWhere, "expected a loss that depends on '", names[i], "', got one that does not");
  }
  return gradients;
}

/// The mean over all batches, in double.
Scores mean_gradients(graph::GraphModule& module, const Names& names, const ScoreInputs& inputs) {
  Scores sums;
  for (int64_t batch = 0; batch < inputs.batches; ++batch) {
    Scores own = gradients_of(module, names, inputs, batch, false);
    for (size_t i = 0; i < own.size(); ++i) {
      const at::Tensor share = own[i].detach().to(at::kDouble) / inputs.batches;
      if (batch == 0) {
        sums.push_back(share);
      } else {
        sums[i] += share;
      }
    }
  }
  return sums;
}

}  // namespace

Scores gradient_scores(Score score, graph::GraphModule& module, const Names& names,
                       const ScoreInputs& inputs) {
  const at::AutoGradMode with_gradients(true);
  Scores made = mean_gradients(module, names, inputs);
  const Scores parameters = parameters_of(module, names);
  double sum = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    if (score != Score::gradient) made[i] = made[i] * parameters[i].detach();
    made[i] = made[i].abs();
    if (score == Score::snip) sum += made[i].sum().item<double>();
  }
  if (score == Score::snip && sum != 0) {
    for (at::Tensor& each : made) each /= sum;
  }
  return made;
}

Scores grasp_scores(graph::GraphModule& module, const Names& names, const ScoreInputs& inputs) {
  const at::AutoGradMode with_gradients(true);
  const Scores mean = mean_gradients(module, names, inputs);
  const Scores parameters = parameters_of(module, names);
  Scores products;
  for (int64_t batch = 0; batch < inputs.batches; ++batch) {
    const Scores own = gradients_of(module, names, inputs, batch, true);
    at::Tensor inner = at::zeros({}, mean[0].options());
    for (size_t i = 0; i < own.size(); ++i) inner = inner + (own[i].to(at::kDouble) * mean[i]).sum();
    Scores hessian(own.size());
    if (inner.requires_grad())
      hessian = torch::autograd::grad({inner}, parameters, {}, /*retain_graph=*/false, /*create_graph=*/false,
                                      /*allow_unused=*/true);
    for (size_t i = 0; i < own.size(); ++i) {
      // Undefined where no gradient depends on the parameter: the product is zero.
      const at::Tensor one = hessian[i].defined() ? hessian[i].detach().to(at::kDouble) / inputs.batches
                                                  : at::zeros_like(mean[i]);
      if (batch == 0) {
        products.push_back(one);
      } else {
        products[i] += one;
      }
    }
  }
  for (size_t i = 0; i < products.size(); ++i) products[i] = products[i] * parameters[i].detach();
  return products;
}

}  // namespace ulp::prune
