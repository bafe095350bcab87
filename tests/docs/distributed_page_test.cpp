// The samples of docs/distributed.md, in one process.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "distributed/data_parallel.includes.h"
#include "distributed/pipeline.includes.h"
#include "distributed/tensor_parallel.includes.h"
#include "distributed/zero.includes.h"

namespace {

TEST(DistributedPage, DataParallelRuns) {
  torch::nn::Linear model(4, 2);
  const auto x = torch::randn({8, 4}), y = torch::randn({8, 2});
  const auto before = model->weight.detach().clone();
#include "distributed/data_parallel.inc"
  EXPECT_FALSE(torch::equal(model->weight, before));
}

TEST(DistributedPage, ZeroRuns) {
  torch::nn::Linear model(4, 2);
  const auto x = torch::randn({8, 4}).to(torch::kBFloat16), y = torch::randn({8, 2}).to(torch::kBFloat16);
#include "distributed/zero.inc"
  EXPECT_EQ(done.result, ulp::amp::StepResult::stepped);
  EXPECT_GT(done.grad_norm, 0);
}

TEST(DistributedPage, TensorParallelRuns) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::GELU(), torch::nn::Linear(8, 2));
  const auto x = torch::randn({8, 4}), y = torch::randn({8, 2});
  const auto before = model[0]->as<torch::nn::Linear>()->weight.detach().clone();
#include "distributed/tensor_parallel.inc"
  EXPECT_FALSE(torch::equal(model[0]->as<torch::nn::Linear>()->weight, before));
}

TEST(DistributedPage, PipelineRuns) {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::GELU(), torch::nn::Linear(8, 2));
  const auto x = torch::randn({8, 4}), y = torch::randn({8, 2});
#include "distributed/pipeline.inc"
  EXPECT_GT(loss, 0);
  EXPECT_EQ(done.result, ulp::amp::StepResult::stepped);
}

}  // namespace
