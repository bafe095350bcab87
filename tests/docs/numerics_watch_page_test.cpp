// The sample of docs/numerics-watch.md: a training loop that is watched.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>

#include "numerics-watch/loop.includes.h"

namespace {

TEST(NumericsWatchPage, TheLoopPrintsALine) {
  torch::manual_seed(1);
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  torch::nn::MSELoss criterion;
  ulp::amp::GradScaler scaler;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
  for (int i = 0; i < 3; ++i) batches.emplace_back(torch::randn({8, 4}), torch::randn({8, 1}));
  ::testing::internal::CaptureStdout();
#include "numerics-watch/loop.inc"
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("fp16"), std::string::npos) << printed;
  EXPECT_EQ(watch.summary().steps.size(), 3u);
}

}  // namespace
