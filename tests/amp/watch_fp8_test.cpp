// A watch over fp8 layers: shares that saturate and become zero, by tensor and role, and the scales.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fp8_support.h"
#include "ulp/amp/fp8/fp8_layers.h"
#include "ulp/amp/watch/watch.h"

namespace {

using namespace ulp::amp;

const Fp8TensorStats* find_tensor(const WatchSummary& summary, const std::string& layer, Fp8Role role) {
  for (const Fp8TensorStats& tensor : summary.fp8) {
    if (tensor.layer == layer && tensor.role == role) return &tensor;
  }
  return nullptr;
}

TEST(WatchFp8, CountsWhatADelayedScaleLoses) {
  torch::nn::Sequential net;
  net->push_back("first", Fp8Linear(16, 4, Fp8LayerRecipe()));
  NumericsWatch watch(*net, {.every = 1});
  // The first scale is 1: e4m3 ends at 448, and its smallest number is 2^-9.
  at::Tensor x = torch::ones({2, 16});
  x[0][0] = 1000;
  x[0][1] = 460;  // rounds to 448
  x[0][2] = 1e-4;
  x[0][3] = 0;
  auto step = watch.begin_step();
  net->forward(x).sum().backward();
  step.gradients();
  step.end();
  const Fp8TensorStats* input = find_tensor(watch.summary(), "first", Fp8Role::input);
  ASSERT_NE(input, nullptr);
  EXPECT_EQ(input->format, "fp8_e4m3fn");
  EXPECT_EQ(input->elements, 32);
  EXPECT_EQ(input->nonzero, 31);
  EXPECT_EQ(input->saturated, 1);
  EXPECT_EQ(input->flushed, 1);
  EXPECT_EQ(input->history.size(), 1U);
  EXPECT_EQ(input->history[0].amax, 1000);
  const Fp8TensorStats* gradient = find_tensor(watch.summary(), "first", Fp8Role::gradient);
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->format, "fp8_e5m2");
  EXPECT_NE(watch.line().find("fp8 layers: "), std::string::npos) << watch.line();
  update_fp8(*net);
  auto next = watch.begin_step();
  net->forward(x);
  next.gradients();
  next.end();
  EXPECT_EQ(input->saturated, 1);
  EXPECT_FLOAT_EQ(find_tensor(watch.summary(), "first", Fp8Role::input)->history[1].scale, 448.0F / 1000);
}

TEST(WatchFp8, NothingIsCountedBetweenSampledSteps) {
  Fp8Linear layer(16, 4, ulp::test::with(Fp8Scaling::mxfp8));
  torch::nn::Sequential net(layer);
  NumericsWatch watch(*net, {.every = 2});
  for (int i = 0; i < 2; ++i) {
    auto step = watch.begin_step();
    net->forward(torch::ones({2, 16}));
    step.end();
  }
  net->forward(torch::ones({2, 16}));
  EXPECT_EQ(find_tensor(watch.summary(), "0", Fp8Role::input)->elements, 32);
}

}  // namespace
