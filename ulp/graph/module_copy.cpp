#include "ulp/graph/module_copy.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <unordered_map>

namespace ulp::graph {

std::shared_ptr<GraphModule> copy_of(const GraphModule& model) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<Graph> copy = model.graph().clone();
  std::unordered_map<const void*, at::Tensor> made;  // by tensor
  for (const auto& [name, attribute] : model.graph().attributes()) {
    at::Tensor& tensor = made[attribute.tensor.unsafeGetTensorImpl()];
    if (!tensor.defined())
      tensor = attribute.tensor.detach().clone().set_requires_grad(attribute.tensor.requires_grad());
    copy->set_attribute(name, {attribute.kind, tensor});
  }
  auto module = std::make_shared<GraphModule>(copy);
  module->train(model.is_training());
  return module;
}

}  // namespace ulp::graph
