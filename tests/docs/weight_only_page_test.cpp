// The sample of docs/weight-only.md: a graph whose weights become 4 bits.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "in_temporary_folder.h"
#include "weight-only/weights.includes.h"

namespace {

TEST(WeightOnlyPage, TheFileIsSmall) {
  const ulp::docs::InTemporaryFolder here;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(256, 256), torch::nn::ReLU(), torch::nn::Linear(256, 256));
  model->eval();
  auto captured = ulp::capture(model, {torch::randn({2, 256})});
#include "weight-only/weights.inc"
  EXPECT_LT(std::filesystem::file_size("bert-int4.ulp"), 2u * 256 * 256) << "fp32 takes twice four bytes";
}

}  // namespace
