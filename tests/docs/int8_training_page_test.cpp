// The sample of docs/int8-training.md: a captured model with int8 layers takes a step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "int8-training/to_int8.includes.h"

namespace {

TEST(Int8TrainingPage, TheStepRuns) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::Linear(16, 16), torch::nn::Linear(16, 2));
  const auto x = torch::randn({4, 8}), y = torch::randn({4, 2});
#include "int8-training/to_int8.inc"
  EXPECT_EQ(report.changes.size(), 1U);
  for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

}  // namespace
