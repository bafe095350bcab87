// The sample of docs/int8-training.md: an int8 layer takes a step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "int8-training/layer.includes.h"

namespace {

TEST(Int8TrainingPage, TheStepRuns) {
  torch::manual_seed(1);
  const auto x = torch::randn({4, 8}), y = torch::randn({4, 16});
#include "int8-training/layer.inc"
  EXPECT_TRUE(layer->weight.grad().abs().sum().item<double>() > 0);
}

}  // namespace
