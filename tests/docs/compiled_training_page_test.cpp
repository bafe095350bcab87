// The samples of docs/compiled-training.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "compiled-training/compile.includes.h"
#include "compiled-training/loop.includes.h"
#include "compiled-training/loss.includes.h"

namespace {

torch::nn::Sequential small_policy() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4));
}

TEST(CompiledTrainingPage, Compile) {
  torch::nn::Sequential model = small_policy();
  const torch::Tensor inputs = torch::randn({16, 8}), targets = torch::randn({16, 4});
  const float before = torch::mse_loss(model->forward(inputs), targets).item<float>();
  float loss = 0;
#include "compiled-training/compile.inc"
  EXPECT_LT(loss, 0.9F * before);
}

TEST(CompiledTrainingPage, Loop) {
  torch::nn::Sequential model = small_policy();
  const auto graph = ulp::capture(model, {torch::randn({16, 8})});
  ulp::amp::FusedOptimizer optimizer(graph->parameters(), ulp::amp::AdamRule{});
  const torch::Tensor drawn = torch::randn({16, 8}), weights = torch::randn({16}),
                      chosen = torch::randint(4, {16}, at::kLong);
  const float* states = drawn.const_data_ptr<float>();
  const float* advantages = weights.const_data_ptr<float>();
  const auto* actions = chosen.const_data_ptr<int64_t>();
  const torch::Tensor expected = model->forward(drawn);
  const torch::Tensor result = torch::zeros({16, 4});
  auto* logits = result.data_ptr<float>();
#include "compiled-training/loop.inc"
  EXPECT_TRUE(torch::allclose(result, expected, 1e-5, 1e-6));
  EXPECT_FALSE(torch::equal(model->forward(drawn), expected));
}

TEST(CompiledTrainingPage, Loss) {
  torch::nn::Sequential network = small_policy();
  const torch::Tensor states = torch::randn({16, 8}), actions = torch::randint(4, {16, 1}, at::kLong),
                      advantages = torch::randn({16, 1});
  const torch::Tensor log_probabilities =
      torch::log_softmax(network->forward(states), -1).gather(1, actions).detach();
#include "compiled-training/loss.inc"
  EXPECT_NEAR(ppo.loss(), -advantages.mean().item<float>(), 1e-5F) << "a ratio of 1";
}

}  // namespace
