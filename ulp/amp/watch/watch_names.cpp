#include "ulp/amp/watch/watch_names.h"

#include "ulp/graph/capture/scope.h"

namespace ulp::amp {

void ModulePaths::add(const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined()) parameters_[tensor.unsafeGetTensorImpl()] = {graph::parent_path(name), true, true};
}

const ModulePaths::Origin* ModulePaths::find(const at::Tensor& tensor) const {
  const auto* key = tensor.unsafeGetTensorImpl();
  if (const auto found = parameters_.find(key); found != parameters_.end()) return &found->second;
  const auto found = origins_.find(key);
  return found == origins_.end() ? nullptr : &found->second;
}

std::string ModulePaths::path_of(const std::vector<at::Tensor>& inputs) const {
  std::vector<std::string> owners, around;
  for (const at::Tensor& input : inputs) {
    const Origin* origin = find(input);
    if (!origin) continue;
    if (origin->weight) {
      owners.push_back(origin->path);
    } else {
      around.push_back(origin->from_parameters ? graph::parent_path(origin->path) : origin->path);
    }
  }
  return graph::common_path(owners.empty() ? around : owners);
}

void ModulePaths::made(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                       const std::string& path) {
  Origin origin{path, !inputs.empty(), false};
  for (const at::Tensor& input : inputs) {
    const Origin* from = find(input);
    const bool weight = from && from->weight;
    origin.weight = origin.weight && weight;
    origin.from_parameters = origin.from_parameters || weight;
  }
  origins_[output.unsafeGetTensorImpl()] = origin;
}

}  // namespace ulp::amp
