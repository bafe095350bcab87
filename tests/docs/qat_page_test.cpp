// The sample of docs/qat.md: a network trains with rounded weights and becomes a plan.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "qat/training.includes.h"

namespace {

TEST(QatPage, TheNetworkTrainsAndIsLowered) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                              torch::nn::Flatten(), torch::nn::Linear(4 * 6 * 6, 2));
  const auto example = torch::randn({4, 1, 8, 8});
  const auto labels = torch::tensor({0, 1, 0, 1});
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches(3, {example, labels});
#include "qat/training.inc"
  EXPECT_TRUE(qat->batch_norm_frozen());
  EXPECT_FALSE(plan.steps.empty());
}

}  // namespace
