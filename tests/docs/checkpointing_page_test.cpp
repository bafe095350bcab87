// The samples of docs/checkpointing.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "checkpointing/budget.includes.h"
#include "checkpointing/function.includes.h"
#include "checkpointing/plan.includes.h"
#include "checkpointing/saved.includes.h"

namespace {

torch::nn::Sequential stack_of_layers() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(torch::nn::Linear(32, 32));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

TEST(CheckpointingPage, Plan) {
  torch::nn::Sequential net = stack_of_layers();
  const torch::Tensor x = torch::randn({64, 32});
#include "checkpointing/plan.inc"
  const at::Tensor found = model->parameters()[0].grad().clone();
  model->zero_grad();
  ulp::memory::checkpoint(*model, {});
  model->forward(x).square().mean().backward();
  EXPECT_TRUE(found.equal(model->parameters()[0].grad()));
}

TEST(CheckpointingPage, Budget) {
  torch::nn::Sequential net = stack_of_layers();
  const torch::Tensor x = torch::randn({64, 32});
  const auto model = ulp::capture(net, {x});
#include "checkpointing/budget.inc"
  EXPECT_NO_THROW(model->forward(x).sum().backward());
}

TEST(CheckpointingPage, Saved) {
  torch::nn::Sequential net = stack_of_layers();
  const torch::Tensor x = torch::randn({64, 32});
  const auto model = ulp::capture(net, {x});
#include "checkpointing/saved.inc"
  EXPECT_NO_THROW(model->forward(x).sum().backward());
}

TEST(CheckpointingPage, Function) {
  const torch::Tensor x = torch::randn({64, 32}, torch::requires_grad());
  torch::nn::Sequential block = stack_of_layers();
#include "checkpointing/function.inc"
  EXPECT_TRUE(y.equal(block->forward(x)));
  EXPECT_NO_THROW(y.sum().backward());
}

}  // namespace
