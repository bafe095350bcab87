// The sample of docs/optimizers.md: a step with bf16 parameters.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "optimizers/step.includes.h"

namespace {

TEST(OptimizersPage, TheStepRuns) {
  torch::manual_seed(1);
  torch::nn::Linear model(4, 2);
  const auto x = torch::randn({8, 4}).to(torch::kBFloat16);
  const auto y = torch::randn({8, 2}).to(torch::kBFloat16);
  const auto before = model->weight.detach().clone();
#include "optimizers/step.inc"
  EXPECT_EQ(done.result, ulp::amp::StepResult::stepped);
  EXPECT_GT(done.grad_norm, 0);
  EXPECT_FALSE(torch::equal(model->weight, before.to(torch::kBFloat16)));
}

}  // namespace
