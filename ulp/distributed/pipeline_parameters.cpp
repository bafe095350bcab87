#include "ulp/distributed/pipeline_parameters.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <unordered_map>
#include <utility>

#include "ulp/distributed/named_tensors.h"

namespace ulp::distributed {

PipelineParameters::PipelineParameters(const std::vector<StageProgram>& programs, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  std::unordered_map<const c10::TensorImpl*, size_t> first_stage;
  std::unordered_map<const c10::TensorImpl*, bool> is_shared;
  const auto own_stage = static_cast<size_t>(group.rank());
  std::unordered_map<const c10::TensorImpl*, at::Tensor> own_tensors;
  for (const auto& [name, tensor] : named_tensors(*programs[own_stage].module))
    own_tensors.emplace(tensor.unsafeGetTensorImpl(), tensor);
  for (size_t s = 0; s < programs.size(); ++s) {
    std::vector<std::string>& names = names_.emplace_back();
    for (const auto& [name, tensor] : named_tensors(*programs[s].module)) {
      const c10::TensorImpl* key = tensor.unsafeGetTensorImpl();
      const auto [first, is_new] = first_stage.emplace(key, s);
      if (is_new) {
        names.push_back(name);
        if (s == own_stage && tensor.requires_grad()) own_.push_back(tensor);
      }
      if (first->second == s || std::exchange(is_shared[key], true)) continue;
      group.broadcast(tensor.detach(), static_cast<int>(first->second)).wait();
      if (!tensor.requires_grad()) continue;
      shared_names_.push_back(name);
      const auto own = own_tensors.find(key);
      shared_.push_back({own == own_tensors.end() ? at::Tensor() : own->second,
                         at::empty_like(tensor, at::TensorOptions(at::kMeta)), tensor.device()});
    }
  }
}

std::vector<at::Tensor> PipelineParameters::set_gradients_aside() {
  std::vector<at::Tensor> aside;
  for (Shared& one : shared_)
    aside.push_back(one.tensor.defined() ? std::exchange(one.tensor.mutable_grad(), at::Tensor())
                                         : at::Tensor());
  return aside;
}

void PipelineParameters::add_gradients(const std::vector<at::Tensor>& aside, ProcessGroup& group) {
  if (shared_.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor users = at::zeros({static_cast<int64_t>(shared_.size())}, at::kDouble);
  for (size_t i = 0; i < shared_.size(); ++i) {
    const at::Tensor& tensor = shared_[i].tensor;
    if (tensor.defined() && tensor.grad().defined()) users[static_cast<int64_t>(i)] = 1;
  }
  group.all_reduce(users).wait();
  for (size_t i = 0; i < shared_.size(); ++i) {
    const Shared& one = shared_[i];
    if (users[static_cast<int64_t>(i)].item<double>() > 0) {
      const bool has = one.tensor.defined() && one.tensor.grad().defined();
      const at::Tensor sum = at::zeros_like(one.gradient_like, at::TensorOptions(one.device));
      if (has) sum.copy_(one.tensor.grad());
      group.all_reduce(sum).wait();
      if (one.tensor.defined()) one.tensor.mutable_grad() = sum.to(one.tensor.scalar_type());
    }
    if (!one.tensor.defined() || !aside[i].defined()) continue;
    at::Tensor& gradient = one.tensor.mutable_grad();
    gradient = gradient.defined() ? aside[i] + gradient : aside[i];
  }
}

}  // namespace ulp::distributed
