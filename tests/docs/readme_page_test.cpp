// The sample of README.md: the main job from training to the engine.
#include <gtest/gtest.h>

#include "in_temporary_folder.h"
#include "readme/main_job.includes.h"

namespace {

TEST(ReadmePage, TheMainJobRuns) {
  const ulp::docs::InTemporaryFolder here;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                              torch::nn::Flatten(), torch::nn::Linear(4 * 6 * 6, 2));
  torch::nn::CrossEntropyLoss criterion;
  const auto x = torch::randn({4, 1, 8, 8});
  const auto y = torch::tensor({0, 1, 0, 1});
  const std::vector<torch::Tensor> calibration = {torch::randn({8, 1, 8, 8}), torch::randn({8, 1, 8, 8})};
  torch::Tensor loss;
  const int64_t batch_size = 4;
  std::vector<float> logits(8, NAN);
  const std::vector<const void*> inputs = {x.const_data_ptr()};
  const std::vector<void*> outputs = {logits.data()};
#include "readme/main_job.inc"
  EXPECT_TRUE(loss.requires_grad());
  for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
}

}  // namespace
