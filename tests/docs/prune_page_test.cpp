// The samples of docs/prune.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "prune/cut.includes.h"
#include "prune/masks.includes.h"
#include "prune/prune_channels.includes.h"

namespace {

std::shared_ptr<ulp::graph::GraphModule> small_network() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3)), torch::nn::ReLU(),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3)), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(16 * 16, 10));
  return ulp::capture(net, {torch::randn({2, 3, 8, 8})});
}

TEST(PrunePage, Masks) {
  const auto module = small_network();
  const at::Tensor x = torch::randn({3, 3, 8, 8}), before = module->forward(x);
#include "prune/masks.inc"
  EXPECT_NEAR(sparsity, 0.9, 1e-3);
  EXPECT_FALSE(sparse->forward(x).allclose(before));
  EXPECT_TRUE(module->forward(x).equal(before));
}

TEST(PrunePage, Cut) {
  const auto module = small_network();
#include "prune/cut.inc"
  EXPECT_LT(small.module->parameters()[0].size(0), 16);
  EXPECT_FALSE(plan.steps.empty());
}

TEST(PrunePage, PruneChannels) {
  const auto module = small_network();
#include "prune/prune_channels.inc"
  EXPECT_EQ(small.cut.at(0).before, 16);
  EXPECT_EQ(small.cut.at(0).after, 11);
  EXPECT_FALSE(plan.steps.empty());
}

}  // namespace
