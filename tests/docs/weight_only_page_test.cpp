// The samples of docs/weight-only.md: a graph whose weights become 4 bits.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "in_temporary_folder.h"
#include "weight-only/gptq.includes.h"
#include "weight-only/mixed.includes.h"
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

TEST(WeightOnlyPage, GptqTellsTheErrorOfEachLayer) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(256, 128), torch::nn::ReLU(), torch::nn::Linear(128, 64));
  model->eval();
  const std::vector<at::Tensor> calibration = {torch::randn({200, 256}), torch::randn({150, 256})};
  auto captured = ulp::capture(model, {calibration[0]});
#include "weight-only/gptq.inc"
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_LT(errors[1].error, errors[1].plain_error);
}

TEST(WeightOnlyPage, MixedPrecisionStaysWithinItsBytes) {
  const ulp::docs::InTemporaryFolder here;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(256, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512));
  model->eval();
  const at::Tensor x = torch::randn({32, 256});
  auto captured = ulp::capture(model, {x});
  const at::Tensor expected = captured->forward(x);
  const ulp::quant::CalibrationData data = [&](const ulp::quant::RunBatch& run) { run({x}); };
  const auto loss = [&](ulp::graph::GraphModule& one) {
    const at::NoGradGuard no_grad;
    return (one.forward(x) - expected).square().mean().item<double>();
  };
  std::stringstream shown;
  std::streambuf* const before = std::cout.rdbuf(shown.rdbuf());
#include "weight-only/mixed.inc"
  std::cout.rdbuf(before);
  EXPECT_LE(found.measured[found.chosen].bytes, 310 * 1024);
  EXPECT_NE(shown.str().find("overrides"), std::string::npos);
}

}  // namespace
