// The samples of docs/optimizers.md: a step with bf16 parameters, moments of 8 bits, state on the host.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "optimizers/moments.includes.h"
#include "optimizers/offload.includes.h"
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

struct Embedded : torch::nn::Module {
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(100, 64))};
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(64, 64))};
};

TEST(OptimizersPage, EmbeddingsKeepFp32Moments) {
  const auto model = std::make_shared<Embedded>();
#include "optimizers/moments.inc"
  for (auto& parameter : model->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  optimizer.step();
  EXPECT_EQ(optimizer.state_bytes(), 2 * (4 * 6400 + 4 * 64 + (4096 + 4 * 16)));
}

TEST(OptimizersPage, TheHostMakesTheStep) {
  const auto model = std::make_shared<Embedded>();
#include "optimizers/offload.inc"
  const auto before = model->linear->weight.detach().clone();
  model->linear->weight.mutable_grad() = torch::ones_like(before);
  optimizer.step();
  EXPECT_LT(model->linear->weight.max().item<float>(), before.max().item<float>());
}

}  // namespace
