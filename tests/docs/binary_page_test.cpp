// The samples of docs/binary.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "binary/layers.includes.h"
#include "binary/training.includes.h"

namespace {

int64_t binary_steps_of(const ulp::runtime::Plan& plan) {
  return std::ranges::count_if(plan.steps, [](const ulp::runtime::Step& step) {
    return step.op == ulp::runtime::Op::binary_conv || step.op == ulp::runtime::Op::binary_linear;
  });
}

TEST(BinaryPage, Training) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(1, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                              torch::nn::Conv2d(8, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
                              torch::nn::Flatten(), torch::nn::Linear(8 * 4 * 4, 2));
  const auto example = torch::randn({4, 1, 8, 8});
  const auto labels = torch::tensor({0, 1, 0, 1});
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches(3, {example, labels});
#include "binary/training.inc"
  EXPECT_EQ(ulp::quant::latent_weights(*qat), std::vector<std::string>{"3.weight"});
  EXPECT_EQ(binary_steps_of(plan), 1);
}

TEST(BinaryPage, Layers) {
  torch::manual_seed(1);
  const auto example = torch::randn({4, 1, 8, 8});
#include "binary/layers.inc"
  EXPECT_EQ(latent, (std::vector<std::string>{"2.weight", "5.weight"}));
  EXPECT_EQ(binary_steps_of(plan), 2);
}

}  // namespace
