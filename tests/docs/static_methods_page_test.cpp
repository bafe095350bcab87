// The sample of docs/static-methods.md: 4 bits by methods.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "static-methods/methods.includes.h"
#include "ulp/graph/capture/capture.h"

namespace {

TEST(StaticMethodsPage, ErrorsAreToldOfEachLayer) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  torch::nn::Sequential model(torch::nn::Linear(32, 24), torch::nn::ReLU(), torch::nn::Linear(24, 8));
  model->eval();
  const std::vector<at::Tensor> calibration = {torch::randn({200, 32}), torch::randn({150, 32})};
  auto captured = ulp::capture(model, {calibration[0]});
#include "static-methods/methods.inc"
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_LT(errors[1].error, errors[1].plain_error);
  EXPECT_EQ(quantized->forward(calibration[0]).sizes(), at::IntArrayRef({200, 8}));
}

}  // namespace
