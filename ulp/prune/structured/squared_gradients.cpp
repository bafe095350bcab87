#include "ulp/prune/structured/squared_gradients.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::prune {

SquaredGradients squared_gradients(
    graph::GraphModule& module, int64_t count,
    const std::function<at::Tensor(graph::GraphModule& module, int64_t i)>& loss) {
  if (count < 1) fail("prune.squared_gradients", "expected a count of at least 1, got ", count);
  if (!loss) fail("prune.squared_gradients", "expected a loss, got none");
  SquaredGradients result;
  std::vector<at::Tensor> parameters, sums;
  std::vector<std::vector<std::string>> names;  // a tensor may have several
  for (const auto& [name, attribute] : module.graph().attributes()) {
    if (attribute.kind != graph::Attribute::Kind::parameter || !attribute.tensor.requires_grad()) continue;
    const at::Tensor& tensor = attribute.tensor;
    const auto known =
        std::ranges::find_if(parameters, [&](const at::Tensor& one) { return one.is_same(tensor); });
    if (known != parameters.end()) {
      names[static_cast<size_t>(known - parameters.begin())].push_back(name);
      continue;
    }
    parameters.push_back(tensor);
    names.push_back({name});
    const bool wide = tensor.scalar_type() == at::kDouble;
    sums.push_back(
        torch::zeros_like(tensor, tensor.options().dtype(wide ? at::kDouble : at::kFloat)).detach());
  }
  if (parameters.empty()) fail("prune.squared_gradients", "expected parameters that are trained, got none");
  const at::AutoGradMode with_gradients(true);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor value = loss(module, i);
    if (!value.defined() || value.numel() != 1 || !value.requires_grad())
      fail("prune.squared_gradients", "expected a scalar loss that depends on the parameters, got ",
           !value.defined()     ? "none"
           : value.numel() != 1 ? "several numbers"
                                : "one that does not");
    const std::vector<at::Tensor> gradients =
        torch::autograd::grad({value}, parameters, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                              /*allow_unused=*/true);
    const torch::NoGradGuard no_grad;
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!gradients[p].defined()) continue;
      const at::Tensor gradient = gradients[p].to_dense().to(sums[p].scalar_type());
      sums[p].addcmul_(gradient, gradient, 1.0 / static_cast<double>(count));
    }
  }
  const torch::NoGradGuard no_grad;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!sums[p].isfinite().all().item<bool>())
      fail("prune.squared_gradients", "expected finite gradients, got others of '", names[p][0], "'");
    for (const std::string& name : names[p]) result[name] = sums[p];
  }
  return result;
}

}  // namespace ulp::prune
