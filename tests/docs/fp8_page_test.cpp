// The samples of docs/fp8.md: a captured model that trains in fp8, and layers under guards.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <ulp/ulp.h>

#include "fp8/graph.includes.h"
#include "fp8/guard.includes.h"

namespace {

TEST(Fp8Page, TheGraphTrains) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 32),
                              torch::nn::ReLU(), torch::nn::Linear(32, 4));
  const torch::Tensor x = torch::randn({64, 8}), y = x.narrow(1, 0, 4).argmax(1);
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  torch::nn::CrossEntropyLoss criterion;
  torch::Tensor loss;
  const int steps = 40;
#include "fp8/graph.inc"
  EXPECT_LT(loss.item<float>(), 0.7F);
  EXPECT_EQ(report.changes, std::vector<std::string>{"2 computes in fp8"});
}

TEST(Fp8Page, TheGuardChooses) {
  const torch::Tensor x = torch::randn({4, 64});
  torch::Tensor hidden, y;
#include "fp8/guard.inc"
  EXPECT_FALSE(torch::equal(hidden, first(x)));
  EXPECT_TRUE(torch::equal(y, second(hidden)));
}

}  // namespace
