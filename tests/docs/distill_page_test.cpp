// The samples of docs/distill.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "distill/distiller.includes.h"
#include "distill/taps.includes.h"

namespace {

std::shared_ptr<ulp::graph::GraphModule> network(int64_t hidden) {
  torch::manual_seed(hidden);
  torch::nn::Sequential net(torch::nn::Linear(6, hidden), torch::nn::ReLU(), torch::nn::Linear(hidden, 4));
  return ulp::capture(net, {torch::randn({2, 6})});
}

TEST(DistillPage, Distiller) {
  const auto teacher = network(16), student = network(4);
  const ulp::distill::Batch batch{{torch::randn({8, 6})}, torch::arange(8) % 4};
  const at::Tensor before = student->parameters()[0].clone();
#include "distill/distiller.inc"
  EXPECT_FALSE(student->parameters()[0].equal(before));
  EXPECT_EQ(learner.adapters().size(), 2U);
}

TEST(DistillPage, Taps) {
  const auto student = network(4);
  const at::Tensor x = torch::randn({3, 6});
#include "distill/taps.inc"
  ASSERT_EQ(values.taps.size(), 2U);
  EXPECT_TRUE(values.output().equal(student->forward(x)));
  EXPECT_TRUE(values.taps[0].relu().equal(values.taps[1]));
}

}  // namespace
