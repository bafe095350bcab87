// The samples of docs/gpu.md: on processors nothing is measured, and nothing is said; kernels for GPUs are
// refused.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "error_of.h"
#include "gpu/capturable_step.includes.h"
#include "gpu/fp8_product_choices.includes.h"
#include "gpu/graphed_step.includes.h"

namespace {

TEST(GpuPage, ProductsOnProcessorsAreEmulated) {
  std::ostringstream text;
  std::streambuf* const shown = std::cout.rdbuf(text.rdbuf());
#include "gpu/fp8_product_choices.inc"
  std::cout.rdbuf(shown);
  EXPECT_EQ(text.str(), "");
}

/// Values that both samples use.
struct GpuPageNet {
  torch::nn::Linear model{4, 2};
  ulp::amp::GradScaler scaler;
  std::vector<std::pair<at::Tensor, at::Tensor>> batches = {
      {torch::randn({3, 4}), torch::zeros({3}, at::kLong)}};
  at::Tensor loss(const at::Tensor& x, const at::Tensor& classes) {
    return torch::cross_entropy_loss(model(x), classes);
  }
};

TEST(GpuPage, StepsOnTheDeviceAreRefusedOnProcessors) {
  GpuPageNet net;
  auto& model = net.model;
  auto& scaler = net.scaler;
  const auto& batches = net.batches;
  const auto loss = [&](const at::Tensor& x, const at::Tensor& classes) { return net.loss(x, classes); };
  const auto capturable = [&] {
#include "gpu/capturable_step.inc"
  };
  const auto graphed = [&] {
#include "gpu/graphed_step.inc"
  };
  EXPECT_ERROR(capturable(), "CUDA parameters");
  EXPECT_ERROR(graphed(), "CUDA parameters");
}

}  // namespace
