// The samples of docs/autocast.md: LibTorch's lists, and a policy of one's own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "autocast/guard.includes.h"
#include "autocast/policy.includes.h"

namespace {

TEST(AutocastPage, TheGuardComputesInBf16) {
  torch::nn::Linear model(4, 1);
  const auto x = torch::randn({8, 4});
  const auto y = torch::randn({8, 1});
  torch::Tensor outputs, loss;
  const auto criterion = [&](const torch::Tensor& result, const torch::Tensor& wanted) {
    outputs = result;
    return torch::mse_loss(result, wanted);
  };
#include "autocast/guard.inc"
  EXPECT_EQ(outputs.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(model->weight.grad().defined());
}

TEST(AutocastPage, ThePolicyHoldsInItsScope) {
  const auto x = torch::randn({8, 4});
#include "autocast/policy.inc"
  EXPECT_EQ(torch::softmax(x, 1).scalar_type(), torch::kBFloat16);
}

}  // namespace
