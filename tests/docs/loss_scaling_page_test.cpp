// The sample of docs/loss-scaling.md: an fp16 loop with accumulation, clipping and a schedule learns.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "loss-scaling/loop.includes.h"

namespace {

TEST(LossScalingPage, TheLoopLearns) {
  torch::manual_seed(3);
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  const auto wanted = torch::tensor({{1.0f}, {-2.0f}, {0.5f}, {0.0f}});
  std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
  for (int i = 0; i < 400; ++i) {
    const auto inputs = torch::randn({8, 4});
    batches.emplace_back(inputs, inputs.mm(wanted));
  }
#include "loss-scaling/loop.inc"
  EXPECT_GE(schedule.step(), 95) << "a few steps are lost while the scale is found";
  EXPECT_LT((model->weight.detach().t() - wanted).abs().max().item<float>(), 0.1f);
}

}  // namespace
