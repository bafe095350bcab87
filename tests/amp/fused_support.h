// Shared by the tests of the fused optimizer: parameters with gradients, distances in ulp, messages of
// errors.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "ulp/amp/optimizer/fused_optimizer.h"

namespace ulp::amp::test {

using Tensors = std::vector<at::Tensor>;

/// Uneven sizes, an empty tensor, one without a gradient (the last), and channels_last memory.
inline Tensors make_parameters(at::ScalarType type = at::kFloat, uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  const std::vector<std::vector<int64_t>> shapes = {{1}, {7, 3}, {129}, {0}, {16500}, {}, {6, 5, 3, 3}, {4}};
  Tensors parameters;
  for (const auto& shape : shapes) {
    at::Tensor values = torch::randn(shape, generator).to(type);
    if (values.dim() == 4) values = values.contiguous(at::MemoryFormat::ChannelsLast);
    parameters.push_back(values.requires_grad_());
  }
  return parameters;
}

/// Gradients of all parameters but the last, times `factor`, in the parameters' layout.
inline void set_gradients(const Tensors& parameters, uint64_t seed, double factor = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  for (size_t i = 0; i + 1 < parameters.size(); ++i) {
    const at::Tensor values = torch::randn(parameters[i].sizes(), generator) * factor;
    auto parameter = parameters[i];
    parameter.mutable_grad() = at::empty_like(parameter.detach()).copy_(values);
  }
}

inline Tensors copies(const Tensors& parameters) {
  Tensors result;
  for (const at::Tensor& each : parameters) {
    result.push_back(each.detach().clone().requires_grad_());
    if (each.grad().defined()) result.back().mutable_grad() = each.grad().clone();
  }
  return result;
}

/// The largest distance of two fp32 tensors in units of the last place of the larger of the two magnitudes
/// and `scale`: the operands of a sum round at their own magnitude, however small the sum is.
inline double distance_in_ulp(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale) {
  if (a.numel() == 0) return 0;
  const at::Tensor size = torch::maximum(torch::maximum(a.abs(), b.abs()), scale.abs()).to(at::kDouble);
  const at::Tensor ulp = torch::exp2(torch::floor(torch::log2(size.clamp_min(0x1p-126))) - 23);
  return ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / ulp).max().item<double>();
}

/// Ours multiply and add with one rounding, as LibTorch does where its kernels have an instruction for it.
/// Elsewhere each of a step's four sums may differ: of weight decay, momentum, Nesterov and the update.
inline double ulp_of_sums() {
  const at::Tensor one = at::full({64}, -1.0F), factor = at::full({64}, 1 + 0x1p-12F);
  const bool fused = at::add(one, factor, 1 + 0x1p-12).equal(at::full({64}, 0x1p-11F + 0x1p-24F));
  return fused ? 0 : 4;
}

inline FusedParamState& state_of(FusedOptimizer& optimizer, const at::Tensor& parameter) {
  return static_cast<FusedParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
}

using ulp::test::error_of;

}  // namespace ulp::amp::test
