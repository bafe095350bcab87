// AWQ: scales, clipped ranges, and where 1 / s goes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {
namespace {

using at::Tensor;

/// A block as decoders have it: a norm that two layers read, their product, a layer behind it, a curve, and a last layer.
struct Gated : torch::nn::Module {
  explicit Gated(bool own_norm) : own_norm(own_norm) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    gain = register_parameter("gain", torch::rand({32}) + 0.5);
    gate = register_module("gate", torch::nn::Linear(32, 48));
    up = register_module("up", torch::nn::Linear(32, 48));
    down = register_module("down", torch::nn::Linear(48, 32));
    last = register_module("last", torch::nn::Linear(32, 8));
    torch::nn::init::uniform_(norm->weight, 0.5, 1.5);
    torch::nn::init::uniform_(norm->bias, -0.5, 0.5);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = own_norm ? x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * gain : norm(x);
    return last(torch::gelu(down(torch::silu(gate(y)) * up(y))));
  }
  bool own_norm;
  Tensor gain;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear gate{nullptr}, up{nullptr}, down{nullptr}, last{nullptr};
};

/// A few channels much larger than the others.
Tensor with_outliers(int64_t rows, int64_t columns) {
  Tensor x = at::randn({rows, columns});
  x.select(1, 3).mul_(40);
  x.select(1, 17).mul_(25);
  return x;
}

CalibrationData once(const Tensor& x) {
  return [x](const RunBatch& run) { run({x}); };
}

int64_t count(const graph::GraphModule& model, const char* op) {
  int64_t found = 0;
  for (const auto& node : model.graph().nodes()) found += node->is(op) ? 1 : 0;
  return found;
}

TEST(Awq, ScalesGoIntoWhatMakesTheInput) {
  const at::NoGradGuard no_grad;
  for (const bool own_norm : {false, true}) {
    torch::manual_seed(3);
    Gated model(own_norm);
    const Tensor x = with_outliers(400, 32);
    const auto captured = capture(model, {x});
    const Tensor exact = captured->forward(x);
    graph::PassReport report;
    std::vector<WeightError> errors;
    WeightOnlyRecipe recipe{.bits = 4, .group = 8};
    const auto made = awq(captured, once(x), recipe, &report, &errors);
    made->graph().verify();
    ASSERT_EQ(errors.size(), 4U);
    for (const WeightError& error : errors) {
      EXPECT_LE(error.error, error.plain_error) << error.layer;
      EXPECT_GT(error.alpha, 0) << error.layer;
    }
    EXPECT_EQ(errors[0].alpha, errors[1].alpha) << "they read one value";
    EXPECT_SAYS(errors[0].note, own_norm ? "1 / s is in gain" : "1 / s is in norm");
    EXPECT_EQ(errors[0].note, errors[1].note);
    EXPECT_SAYS(errors[2].note, "1 / s is in up");
    EXPECT_SAYS(errors[3].note, "its input is multiplied by 1 / s");
    EXPECT_SAYS(report.changes[3], "multiplied by 1 / s");
    EXPECT_EQ(count(*made, "aten::mul"), count(*captured, "aten::mul") + 1);
    const auto distance = [&](const std::shared_ptr<graph::GraphModule>& other) {
      return (other->forward(x) - exact).norm().item<double>() / exact.norm().item<double>();
    };
    EXPECT_LT(distance(made), 0.9 * distance(quantize_weights(captured, recipe)));
    // Codes of 8 bits are so fine that a scale in the wrong place would show.
    recipe.bits = 8;
    EXPECT_LT(distance(awq(captured, once(x), recipe)), 0.02);
    EXPECT_TRUE(captured->forward(x).equal(exact)) << "the model's own tensors stay";
  }
}

/// Another reader of the normalised value.
struct Residual : torch::nn::Module {
  Residual() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
    first = register_module("first", torch::nn::Linear(32, 32));
    second = register_module("second", torch::nn::Linear(32, 32));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = norm(x * stretch);
    return y + second(torch::relu(first(y)));
  }
  Tensor stretch = torch::ones({32});
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr};
};

TEST(Awq, AValueThatOthersReadIsNotScaled) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(4);
  Residual model;
  model.norm->weight.mul_(at::linspace(0.1, 6, 32));
  model.first->weight.mul_(at::linspace(0.3, 5, 32).unsqueeze(1));
  const Tensor x = at::randn({300, 32});
  const auto captured = capture(model, {x});
  const Tensor exact = captured->forward(x);
  std::vector<WeightError> errors;
  for (const auto& skip : {std::vector<std::string>{}, std::vector<std::string>{"first"}}) {
    const auto made =
        awq(captured, once(x), {.bits = 4, .group = 16, .skip_modules = skip}, nullptr, &errors);
    if (skip.empty()) EXPECT_SAYS(errors[0].note, "its input is multiplied by 1 / s");
    EXPECT_SAYS(errors.back().note, "1 / s is in first") << "through relu, whether it has codes or not";
    EXPECT_LT((made->forward(x) - exact).norm().item<double>(), 0.1 * exact.norm().item<double>());
  }
}

TEST(Awq, TheSearchTakesTheLeastError) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(5);
  torch::nn::Linear layer(32, 16);
  const Tensor x = with_outliers(300, 32), weight = layer->weight.detach();
  const auto captured = capture(layer, {x});
  const Tensor mean = x.abs().mean(0);
  const WeightOnlyRecipe recipe{.bits = 4, .group = 16, .clip = false};
  double least = 1e30, best = -1;
  for (int i = 0; i < 20; ++i) {
    Tensor s = mean.pow(i / 20.0);
    s = s / (s.max() * s.min()).sqrt();
    const Tensor rounded = quantize_dequantize(weight * s, qparams_of(weight * s, recipe.scheme())) / s;
    const double error = at::linear(x, rounded - weight).square().sum().item<double>();
    if (error < least) {
      least = error;
      best = i / 20.0;
    }
  }
  const double whole = at::linear(x, weight).square().sum().item<double>();
  std::vector<WeightError> errors;
  awq(captured, once(x), recipe, nullptr, &errors);
  EXPECT_EQ(errors[0].alpha, best);
  EXPECT_NEAR(errors[0].error, least / whole, 1e-4 * least / whole);
  EXPECT_LT(errors[0].error, 0.7 * errors[0].plain_error) << "channels of 40 times the size";
  const double unclipped = errors[0].error;
  awq(captured, once(x), {.bits = 4, .group = 16}, nullptr, &errors);
  EXPECT_LT(errors[0].error, unclipped);
}

}  // namespace
}  // namespace ulp::quant
