// The fp8 operators: exact where numbers fit, gradients by their definition and by differences, dtypes, state, cache.
#include "ulp/amp/fp8/fp8_ops.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "constants.h"
#include "error_of.h"
#include "fp8_support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/fp8/fp8_sink.h"

namespace {

using namespace ulp::amp;
using ulp::test::eighths;
using ulp::test::error_of;
using ulp::test::golden_values;
using ulp::test::with;

const ConvolutionShape kShape{.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};

/// Recipes whose scales are powers of two and whose formats hold eighths.
std::vector<Fp8LayerRecipe> exact_recipes() {
  Fp8LayerRecipe current = with(Fp8Scaling::current);
  current.power_of_2 = true;
  return {current, with(Fp8Scaling::rowwise), with(Fp8Scaling::block), with(Fp8Scaling::mxfp8)};
}

struct Layer {
  at::Tensor x, w, b;
};
Layer linear_layer() {
  return {eighths({2, 3, 40}, 1).requires_grad_(), eighths({5, 40}, 2).requires_grad_(),
          eighths({5}, 3).requires_grad_()};
}
Layer conv_layer() {
  return {eighths({2, 3, 6, 5}, 1).requires_grad_(), eighths({4, 3, 3, 2}, 2).requires_grad_(),
          eighths({4}, 3).requires_grad_()};
}

using Call = std::function<at::Tensor(const Layer&, const Fp8LayerRecipe&)>;
at::Tensor call_linear(const Layer& layer, const Fp8LayerRecipe& recipe) {
  return fp8_linear(layer.x, layer.w, layer.b, recipe);
}
at::Tensor call_conv(const Layer& layer, const Fp8LayerRecipe& recipe) {
  return fp8_convolution(layer.x, layer.w, layer.b, kShape, recipe);
}
at::Tensor plain_conv(const Layer& layer) {
  return at::conv2d(layer.x, layer.w, layer.b, kShape.stride, kShape.padding);
}

void expect_same(const Layer& fp8, const at::Tensor& y, const Layer& plain, const at::Tensor& expected,
                 const std::string& what) {
  EXPECT_TRUE(torch::equal(y, expected)) << what;
  const at::Tensor dy = eighths(y.sizes(), 4);
  y.backward(dy);
  expected.backward(dy);
  EXPECT_TRUE(torch::allclose(fp8.x.grad(), plain.x.grad(), 0, 1e-5)) << what;
  EXPECT_TRUE(torch::allclose(fp8.w.grad(), plain.w.grad(), 0, 1e-5)) << what;
  EXPECT_TRUE(torch::allclose(fp8.b.grad(), plain.b.grad(), 0, 1e-5)) << what;
}

TEST(Fp8Ops, AreExactForNumbersThatFit) {
  for (const Fp8LayerRecipe& recipe : exact_recipes()) {
    const Layer fp8 = linear_layer(), plain = linear_layer();
    expect_same(fp8, call_linear(fp8, recipe), plain, at::linear(plain.x, plain.w, plain.b),
                "linear " + recipe.text());
    const Layer fp8_conv = conv_layer(), plain_layer = conv_layer();
    expect_same(fp8_conv, call_conv(fp8_conv, recipe), plain_layer, plain_conv(plain_layer),
                "conv " + recipe.text());
  }
}

/// Differences of the op itself: steps of one eighth keep every number on the grid, where it is linear.
void check_differences(const Layer& layer, const Call& call, const Fp8LayerRecipe& recipe) {
  const at::Tensor y = call(layer, recipe);
  const at::Tensor dy = eighths(y.sizes(), 5);
  y.backward(dy);
  for (const at::Tensor& operand : {layer.x, layer.w, layer.b}) {
    const at::NoGradGuard no_grad;
    at::Tensor flat = operand.detach().view(-1);
    for (int64_t i = 0; i < flat.numel(); i += 3) {
      const float before = flat[i].item<float>();
      if (std::fabs(before) > 0.75F) continue;  // its scale would be another one
      flat[i] = before + 0.125F;
      const at::Tensor up = call(layer, recipe);
      flat[i] = before - 0.125F;
      const at::Tensor down = call(layer, recipe);
      flat[i] = before;
      const double numeric = ((up - down) * dy).sum().item<double>() / 0.25;
      EXPECT_NEAR(operand.grad().view(-1)[i].item<double>(), numeric, 1e-4) << recipe.text() << ' ' << i;
    }
  }
}

TEST(Fp8Ops, GradientsAreTheDifferencesOfTheOp) {
  for (const Fp8LayerRecipe& recipe : exact_recipes()) {
    check_differences(linear_layer(), call_linear, recipe);
    check_differences(conv_layer(), call_conv, recipe);
  }
}

TEST(Fp8Ops, GradientsAreProductsOfQuantizedOperands) {
  for (const Fp8LayerRecipe& recipe : ulp::test::every_recipe()) {
    if (recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::nvfp4) continue;
    const at::Tensor x = golden_values(1, {24, 40}).requires_grad_(),
                     w = golden_values(2, {20, 40}).requires_grad_();
    const at::Tensor dy = golden_values(3, {24, 20});
    fp8_linear(x, w, {}, recipe).backward(dy);
    const auto q = [&](const at::Tensor& t, Fp8Role role) {
      return quantize_fp8(t.detach().contiguous(), recipe, role).dequantized();
    };
    const at::Tensor dx = torch::mm(q(dy, Fp8Role::gradient), q(w.t(), Fp8Role::weight).t());
    const at::Tensor dw = torch::mm(q(dy.t(), Fp8Role::gradient), q(x.t(), Fp8Role::input).t());
    EXPECT_TRUE(torch::allclose(x.grad(), dx, 1e-4, 1e-6)) << recipe.text();
    EXPECT_TRUE(torch::allclose(w.grad(), dw, 1e-4, 1e-6)) << recipe.text();
  }
}

TEST(Fp8Ops, FourBitProductsAreNearTheExactOnes) {
  const at::Tensor x = torch::randn({64, 128}).requires_grad_(), w = torch::randn({32, 128}).requires_grad_();
  const at::Tensor y = fp8_linear(x, w, {}, with(Fp8Scaling::nvfp4)), dy = torch::randn({64, 32});
  y.backward(dy);
  const auto error = [](const at::Tensor& got, const at::Tensor& exact) {
    return ((got - exact).norm() / exact.norm()).item<double>();
  };
  EXPECT_LT(error(y, torch::mm(x, w.t())), 0.25);
  EXPECT_LT(error(x.grad(), torch::mm(dy, w)), 0.25);
  EXPECT_LT(error(w.grad(), torch::mm(dy.t(), x)), 0.25);
  EXPECT_GT(error(y, torch::mm(x, w.t())), 0.01);
}

TEST(Fp8Ops, ConvolutionsOfOneDimensionAreThoseOfTwo) {
  for (const Fp8LayerRecipe& recipe : exact_recipes()) {
    const at::Tensor x = eighths({2, 3, 9}, 1), w = eighths({4, 3, 3}, 2), b = eighths({4}, 3);
    EXPECT_TRUE(
        torch::equal(fp8_convolution(x, w, b, {{2}, {1}, {1}, 1}, recipe), at::conv1d(x, w, b, 2, 1)));
  }
  const at::Tensor x = eighths({2, 4, 9}, 1), w = eighths({4, 2, 3}, 2);
  EXPECT_TRUE(
      torch::equal(fp8_convolution(x, w, {}, {{1}, {0}, {2}, 2}, exact_recipes()[0]),
                   at::conv1d(x, w, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{2}, 2)));
}

TEST(Fp8Ops, ResultsAreInAutocastsDtypeAndGradientsInTheOperands) {
  const at::Tensor x = torch::randn({4, 32}).to(torch::kBFloat16).requires_grad_();
  const at::Tensor w = torch::randn({8, 32}).requires_grad_();
  EXPECT_EQ(fp8_linear(x, w, {}, with(Fp8Scaling::current)).scalar_type(), torch::kBFloat16);
  at::Tensor y;
  {
    const Autocast autocast(torch::kCPU, torch::kBFloat16);
    y = fp8_linear(x.to(torch::kFloat), w, {}, with(Fp8Scaling::current));
  }
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(w.grad().scalar_type(), torch::kFloat);
}

class CountsWeights final : public Fp8Sink {
 public:
  CountsWeights() { set_fp8_sink(this); }
  ~CountsWeights() override { set_fp8_sink(nullptr); }
  void quantized(const std::string&, Fp8Role role, const at::Tensor&, const Fp8Tensor&) override {
    weights += role == Fp8Role::weight;
  }
  int weights = 0;
};

TEST(Fp8Ops, AWeightIsQuantizedOnceUntilItChanges) {
  const Layer layer = linear_layer();
  const Fp8LayerRecipe recipe = with(Fp8Scaling::mxfp8);
  const CountsWeights count;
  for (int batch = 0; batch < 3; ++batch) call_linear(layer, recipe).sum().backward();
  EXPECT_EQ(count.weights, 1);
  const at::Tensor before = call_linear(layer, recipe);
  {
    const at::NoGradGuard no_grad;
    at::Tensor(layer.w).mul_(2);
  }
  EXPECT_FALSE(torch::equal(call_linear(layer, recipe), before));
  EXPECT_EQ(count.weights, 2);
  torch::nn::Linear none(1, 1);
  update_fp8(*none);
  call_linear(layer, recipe);
  EXPECT_EQ(count.weights, 3);
}

TEST(Fp8Ops, ComputedWeightsAreNotKept) {
  const Layer layer = linear_layer();
  const CountsWeights count;
  for (int i = 0; i < 2; ++i) fp8_linear(layer.x, layer.w * 2, {}, with(Fp8Scaling::current));
  EXPECT_EQ(count.weights, 2);
}

TEST(Fp8Ops, WhatDoesNotFitIsAnError) {
  const at::Tensor x = torch::ones({2, 8}), w = torch::ones({4, 8}), image = torch::ones({1, 4, 5, 5});
  EXPECT_SAYS(error_of([&] { fp8_linear(x, w, {}, with(Fp8Scaling::delayed)); }),
              "[amp.fp8] expected f32 buffers fp8_scale [3] and fp8_amax_history [3, 1024]");
  EXPECT_SAYS(error_of([&] {
                fp8_linear(x, torch::ones({4, 7}), {}, with(Fp8Scaling::current));
              }),
              "[amp.fp8_linear] expected x [..., in] and a weight [out, in], got [2, 8] and [4, 7]");
  EXPECT_SAYS(error_of([&] { fp8_linear(x, w, torch::ones({3}), with(Fp8Scaling::current)); }),
              "expected a bias [4]");
  EXPECT_SAYS(error_of([&] { fp8_linear(x.to(torch::kInt), w, {}, with(Fp8Scaling::current)); }),
              "floating-point");
  EXPECT_SAYS(error_of([&] {
                fp8_convolution(image, torch::ones({4, 2, 3, 3}), {}, {{1, 1}, {0, 0}, {1, 1}, 2},
                                with(Fp8Scaling::mxfp8));
              }),
              "a convolution in 2 groups has no form with scales of mxfp8");
  EXPECT_SAYS(
      error_of([&] {
        fp8_convolution(image, torch::ones({4, 4, 3, 3}), {}, {{1}, {0}, {1}, 1}, with(Fp8Scaling::current));
      }),
      "[amp.fp8_convolution] expected x");
}

// Delayed scaling.

Fp8LayerRecipe delayed(int64_t history) {
  Fp8LayerRecipe recipe;
  recipe.history = history;
  return recipe;
}

TEST(Fp8Ops, DelayedScalesFollowTheStepsBefore) {
  const Fp8LayerRecipe recipe = delayed(2);
  const Fp8State state = Fp8State::make(recipe, torch::kCPU);
  const Layer layer = linear_layer();
  const auto step = [&](double size) {
    fp8_linear(layer.x * size, layer.w, layer.b, recipe, state).backward(torch::full({2, 3, 5}, 0.5));
    update_fp8_state(state, recipe);
    return state.scale_of(Fp8Role::input).item<float>();
  };
  EXPECT_EQ(step(1), 448.0F);
  EXPECT_EQ(state.scale_of(Fp8Role::weight).item<float>(), 448.0F);
  EXPECT_EQ(state.scale_of(Fp8Role::gradient).item<float>(), 57344.0F / 0.5F);
  EXPECT_EQ(step(0.5), 448.0F);
  EXPECT_EQ(step(0.25), 896.0F);
}

TEST(Fp8Ops, NothingIsNotedWithoutTraining) {
  const Fp8LayerRecipe recipe = delayed(4);
  const Fp8State state = Fp8State::make(recipe, torch::kCPU);
  const Layer layer = linear_layer();
  {
    const at::NoGradGuard no_grad;
    fp8_linear(layer.x, layer.w, layer.b, recipe, state);
  }
  EXPECT_EQ(state.amax_history.abs().max().item<float>(), 0.0F);
  fp8_linear(layer.x, layer.w, layer.b, recipe, state);
  EXPECT_EQ(state.amax_history[0][0].item<float>(), layer.x.abs().max().item<float>());
}

TEST(Fp8Ops, SeveralBatchesOfAStepNoteTheirLargest) {
  const Fp8LayerRecipe recipe = delayed(4);
  const Fp8State state = Fp8State::make(recipe, torch::kCPU);
  const Layer layer = linear_layer();
  for (const double size : {1.0, 4.0, 2.0}) fp8_linear(layer.x * size, layer.w, layer.b, recipe, state);
  update_fp8_state(state, recipe);
  EXPECT_EQ(state.scale_of(Fp8Role::input).item<float>(), 112.0F);
}

TEST(Fp8Ops, AnInfinityCostsOneStepAndNoScale) {
  const Fp8LayerRecipe recipe = delayed(1024);
  const Fp8State state = Fp8State::make(recipe, torch::kCPU);
  const Layer layer = linear_layer();
  const auto step = [&](const at::Tensor& x) {
    const at::Tensor y = fp8_linear(x, layer.w, layer.b, recipe, state);
    update_fp8_state(state, recipe);
    return y;
  };
  step(layer.x * 2);
  EXPECT_EQ(state.scale_of(Fp8Role::input).item<float>(), 224.0F);
  for (const float bad : {kInf, -kInf, static_cast<float>(NAN)}) {
    at::Tensor x = layer.x.detach().clone();
    x[0][0][0] = bad;
    const at::Tensor y = step(x);
    EXPECT_EQ(std::isnan(y[0][0][0].item<float>()), std::isnan(bad));
    EXPECT_TRUE(torch::isfinite(y[1]).all().item<bool>());
    EXPECT_EQ(state.scale_of(Fp8Role::input).item<float>(), 224.0F) << bad;
    EXPECT_TRUE(torch::isfinite(state.amax_history).all().item<bool>());
  }
  step(layer.x * 8);
  EXPECT_EQ(state.scale_of(Fp8Role::input).item<float>(), 56.0F);
}

TEST(Fp8Ops, RandomRoundingIsRepeatedBySeed) {
  const Layer layer = linear_layer();
  const auto gradient = [&] {
    torch::manual_seed(3);
    at::Tensor(layer.x).mutable_grad().reset();
    fp8_linear(layer.x, layer.w, {}, with(Fp8Scaling::nvfp4)).backward(golden_values(2, {2, 3, 5}));
    return layer.x.grad().clone();
  };
  const at::Tensor first = gradient();
  EXPECT_TRUE(torch::equal(gradient(), first));
}

}  // namespace
