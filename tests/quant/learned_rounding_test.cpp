// AdaRound and bias correction: errors by their definition, what they gain, and what is left as it is.
#include "ulp/quant/methods/learned_rounding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

using at::Tensor;
namespace nn = torch::nn;

/// Rows of a layer's input in both networks, and a weight of one group.
struct RoundingCase {
  Tensor x, q, weight, scale;
  Scheme scheme{.bits = 4, .is_signed = true, .mapping = Mapping::symmetric, .range = Range::restricted};

  RoundingCase(int64_t samples, int64_t rows, int64_t columns) {
    x = at::matmul(at::randn({samples, columns}), at::randn({columns, columns})) + 0.3;  // correlated
    q = x + 0.05 * at::randn_like(x);
    weight = at::randn({1, rows, columns});
    weight[0][0][1] = 0;
    scale = at::amax(weight.abs(), 2, true) / 7;
  }
  RoundingData data() const {
    const Tensor w = weight[0].to(at::kDouble), a = x.to(at::kDouble), b = q.to(at::kDouble);
    const Tensor y = at::mm(w, a.t());
    return {at::mm(b.t(), b).unsqueeze(0), at::mm(y, b).unsqueeze(0), y.square().sum(1).unsqueeze(0)};
  }
  /// sum (W x - Q q)^2 of one row.
  double error(int64_t row, const Tensor& codes) const {
    const Tensor rounded = (codes * scale[0][row]).to(at::kDouble);
    return (at::mv(x.to(at::kDouble), weight[0][row].to(at::kDouble)) - at::mv(q.to(at::kDouble), rounded))
        .square()
        .sum()
        .item<double>();
  }
};

TEST(Adaround, FindsWhatEnumerationFinds) {
  const at::NoGradGuard no_grad;
  double gained = 0, possible = 0;
  for (int seed = 0; seed < 8; ++seed) {
    torch::manual_seed(seed);
    const RoundingCase one(60, 2, 6);
    const LearnedRounding made = adaround_weight(one.weight, one.scale, one.scheme, one.data(), 1500);
    double error = 0, nearest = 0, best = 0;
    for (int64_t row = 0; row < 2; ++row) {
      const Tensor steps = one.weight[0][row] / one.scale[0][row], codes = made.codes[0][row].to(at::kFloat);
      EXPECT_LT((codes - steps).abs().max().item<float>(), 1.0F) << "up or down";
      error += one.error(row, codes);
      nearest += one.error(row, steps.round());
      double least = 1e300;
      for (int choice = 0; choice < 64; ++choice) {
        Tensor up = at::zeros({6});
        for (int bit = 0; bit < 6; ++bit) up[bit] = (choice >> bit) & 1;
        least = std::min(least, one.error(row, (steps.floor() + up).clamp(-7, 7)));
      }
      best += least;
    }
    EXPECT_EQ(made.codes[0][0][1].item<int>(), 0) << "a weight of 0 stays";
    EXPECT_NEAR(made.error, error, 1e-9 * nearest);
    EXPECT_NEAR(made.nearest, nearest, 1e-9 * nearest);
    EXPECT_LE(made.error, made.nearest);
    gained += nearest - error;
    possible += nearest - best;
  }
  EXPECT_GT(gained, 0.85 * possible);
}

TEST(Adaround, IsTheSameEveryTimeAndRefusesOtherShapes) {
  torch::manual_seed(1);
  const RoundingCase one(40, 3, 5);
  const LearnedRounding a = adaround_weight(one.weight, one.scale, one.scheme, one.data(), 200);
  EXPECT_TRUE(a.codes.equal(adaround_weight(one.weight, one.scale, one.scheme, one.data(), 200).codes));
  RoundingData data = one.data();
  data.products = data.products.transpose(1, 2);
  EXPECT_SAYS(error_of([&] { adaround_weight(one.weight, one.scale, one.scheme, data, 10); }),
              "expected sums for a weight [groups, rows, columns]");
  data = one.data();
  data.norm[0][0] = NAN;
  EXPECT_SAYS(error_of([&] { adaround_weight(one.weight, one.scale, one.scheme, data, 10); }),
              "expected finite weights and sums");
}

Calibrate feeding(const std::vector<Tensor>& batches) {
  return [batches](graph::GraphModule& model) {
    for (const Tensor& batch : batches) model.forward(batch);
  };
}

Recipe with_methods(const std::vector<std::string>& methods, int64_t bits = 4) {
  Recipe recipe = Recipe::x86_int8();
  recipe.weight.scheme.bits = bits;
  recipe.methods.method = methods;
  if (recipe.methods.has(StaticMethod::adaround)) recipe.methods.adaround_iterations = 300;
  return recipe;
}

/// One layer, its input's shape, and what to expect of it.
struct LayerCase {
  nn::Sequential layer;
  std::vector<int64_t> sizes;
};

std::vector<LayerCase> layer_cases() {
  return {
      {nn::Sequential(nn::Linear(nn::LinearOptions(12, 7).bias(false))), {3, 5, 12}},
      {nn::Sequential(
           nn::Conv1d(nn::Conv1dOptions(4, 6, 3).stride(2).padding(2).dilation(2).groups(2).bias(false))),
       {3, 4, 17}},
      {nn::Sequential(nn::Conv2d(
           nn::Conv2dOptions(4, 6, {3, 2}).stride({2, 1}).padding({1, 0}).dilation({1, 2}).bias(false))),
       {3, 4, 9, 11}},
      {nn::Sequential(nn::Conv2d(nn::Conv2dOptions(6, 6, 3).padding(1).groups(6).bias(false))), {2, 6, 7, 8}},
      {nn::Sequential(nn::Conv3d(nn::Conv3dOptions(4, 6, 2).padding(1).groups(2).bias(false))),
       {2, 4, 5, 4, 3}}};
}

/// What is reported of a layer is what a run of the quantized network shows.
TEST(LearnedRounding, ErrorsAreThoseOfEveryKindOfLayer) {
  const at::NoGradGuard no_grad;
  size_t number = 0;
  for (const LayerCase& one : layer_cases()) {
    torch::manual_seed(9);
    const Tensor x = torch::randn(one.sizes) + 0.5;
    const auto captured = capture(*nn::Sequential(one.layer), {x});
    const Tensor exact = captured->forward(x);
    std::vector<WeightError> errors;
    const auto made =
        quantize(captured, with_methods({"adaround"}), feeding({x, x.flip(0)}), nullptr, &errors);
    made->graph().verify();
    ASSERT_EQ(errors.size(), 1U) << number;
    const auto error = [&](const std::shared_ptr<graph::GraphModule>& model) {
      return ((model->forward(x) - exact).square().sum() / exact.square().sum()).item<double>();
    };
    // Both batches hold the same rows. Sums of fewer than 10^4 numbers in float32.
    EXPECT_NEAR(errors[0].error, error(made), 1e-3 * errors[0].error) << number;
    const auto plain = quantize(captured, with_methods({}), feeding({x}));
    EXPECT_NEAR(errors[0].plain_error, error(plain), 1e-3 * errors[0].plain_error) << number;
    EXPECT_LT(errors[0].error, errors[0].plain_error) << number;
    ++number;
  }
}

/// Mean of each channel of the results.
Tensor channel_means(const Tensor& result) {
  return result.transpose(0, 1).flatten(1).to(at::kDouble).mean(1);
}

/// The largest step of the codes of biases.
double bias_step(const graph::GraphModule& model) {
  double step = 0;
  for (const auto& [name, attribute] : model.graph().attributes()) {
    if (name.find("bias.scale") != std::string::npos)
      step = std::max(step, attribute.tensor.max().item<double>());
  }
  return step;
}

TEST(BiasCorrection, MeansOfEveryKindOfLayerAreThoseOfTheFloatNetwork) {
  const at::NoGradGuard no_grad;
  for (const bool learns : {false, true}) {
    size_t number = 0;
    for (const LayerCase& one : layer_cases()) {
      torch::manual_seed(9);
      const Tensor x = torch::randn(one.sizes) + 0.5;
      const auto captured = capture(*nn::Sequential(one.layer), {x});
      const bool is_linear = number++ == 0;
      const auto means = [&](graph::GraphModule& model) {
        const Tensor y = model.forward(x);
        return channel_means(is_linear ? y.flatten(0, 1) : y);
      };
      std::vector<std::string> methods = {"bias_correction"};
      if (learns) methods.emplace_back("adaround");
      graph::PassReport report;
      const auto made = quantize(captured, with_methods(methods, 3), feeding({x}), &report);
      const auto plain = quantize(captured, with_methods({}, 3), feeding({x}));
      const double before = (means(*plain) - means(*captured)).abs().max().item<double>();
      const double after = (means(*made) - means(*captured)).abs().max().item<double>();
      EXPECT_GT(before, 1e-2) << number;
      EXPECT_LT(after, 0.5 * bias_step(*made) + 1e-5) << number;
      EXPECT_SAYS(report.changes.back(), "bias corrected by up to ");
    }
  }
}

/// Two blocks with a sum, and a layer that reads rows.
struct RoundedNet : nn::Module {
  RoundedNet() {
    first = register_module("first", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    second = register_module("second", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1).bias(false)));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 6, 2).stride(2)));
    last = register_module("last", nn::Linear(6, 5));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::relu(first(x));
    return last(torch::relu(up(torch::relu(second(y) + y))).mean({2, 3}));
  }
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::ConvTranspose2d up{nullptr};
  nn::Linear last{nullptr};
};

TEST(LearnedRounding, NetworksLoseLessAndLayersAreNamed) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(4);
  RoundedNet model;
  std::vector<Tensor> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(torch::randn({8, 3, 6, 6}) + 0.2);
  const auto captured = capture(model, {batches[0]});
  const Tensor x = torch::randn({32, 3, 6, 6}) + 0.2, exact = captured->forward(x);
  graph::PassReport report;
  const auto loss = [&](const Recipe& recipe) {
    const auto made = quantize(captured, recipe, feeding(batches), &report);
    return (made->forward(x) - exact).norm().item<double>() / exact.norm().item<double>();
  };
  const double plain = loss(with_methods({}));
  EXPECT_LT(loss(with_methods({"bias_correction"})), plain);
  EXPECT_LT(loss(with_methods({"adaround"})), 0.8 * plain);
  EXPECT_LT(loss(with_methods({"bias_correction", "adaround"})), 0.6 * plain);
  std::string all;
  for (const std::string& line : report.changes) all += line + '\n';
  for (const char* layer : {"first", "second", "up", "last"}) {
    EXPECT_SAYS(all, std::string(layer) + ": rounding learned: error ");
    EXPECT_SAYS(all, std::string(layer) + ": bias corrected by up to ");
  }
  EXPECT_TRUE(captured->forward(x).equal(exact)) << "the model's own tensors stay";
  Recipe again = with_methods({"bias_correction", "adaround"});
  const auto kept = quantize(captured, again, feeding(batches));
  again.methods.recompute = true;
  EXPECT_TRUE(quantize(captured, again, feeding(batches))->forward(x).equal(kept->forward(x)));
}

TEST(LearnedRounding, SharedWeightsAreLeftByName) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(5);
  struct Twice : nn::Module {
    Twice() { layer = register_module("layer", nn::Linear(8, 8)); }
    Tensor forward(const Tensor& x) { return layer(torch::relu(layer(x))); }
    nn::Linear layer{nullptr};
  } model;
  const Tensor x = torch::randn({16, 8});
  const auto captured = capture(model, {x});
  graph::PassReport report;
  Recipe recipe = with_methods({"adaround", "bias_correction"});
  const auto made = quantize(captured, recipe, feeding({x}), &report);
  made->graph().verify();
  std::string all;
  for (const std::string& line : report.near_misses) all += line + '\n';
  EXPECT_SAYS(all, "layer: adaround leaves it rounded to nearest: several layers read its weight");
}

TEST(LearnedRounding, BadInputIsSaidByName) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(6);
  RoundedNet model;
  const Tensor x = torch::randn({4, 3, 6, 6});
  const auto captured = capture(model, {x});
  const Recipe recipe = with_methods({"adaround"});
  const auto error = [&](const Calibrate& feed) {
    return error_of([&] { quantize(captured, recipe, feed); });
  };
  EXPECT_SAYS(error({}), "expected a function that runs calibration data, got none");
  EXPECT_SAYS(error([](graph::GraphModule&) {}), "expected every observer to have seen data, got none");
  nn::Sequential alone(nn::Linear(6, 4));  // whose result no observer sees
  Tensor infinite = torch::randn({4, 6});
  const auto single = capture(*alone, {infinite});
  infinite[0][0] = INFINITY;
  EXPECT_SAYS(error_of([&] {
                quantize(single, recipe, feeding({torch::randn({4, 6}), infinite}));
              }),
              "expected finite inputs of '0', got NaN or infinite values");
  int calls = 0;
  const Calibrate changing = [&](graph::GraphModule& one) {
    for (int i = 0; i < (calls == 2 ? 2 : 1); ++i) one.forward(x);
    ++calls;
  };
  EXPECT_SAYS(error(changing), "expected the same batches in every call of the calibration function");
  calls = 0;
  const Calibrate once = [&](graph::GraphModule& one) {
    if (calls++ == 0) one.forward(x);
  };
  EXPECT_SAYS(error(once), "expected rows of calibration data for 'first', got none");
  Recipe bad = recipe;
  bad.methods.adaround_iterations = 0;
  EXPECT_SAYS(error_of([&] { bad.validate(); }), "adaround_iterations");
  bad = with_methods({"bias_correction"});
  bad.methods.adaround_iterations = 7;
  EXPECT_SAYS(error_of([&] { bad.validate(); }), "expected the method adaround for adaround_iterations");
  bad = with_methods({"cle"});
  bad.methods.recompute = true;
  EXPECT_SAYS(error_of([&] { bad.validate(); }),
              "expected the method adaround or bias_correction for recompute");
}

}  // namespace
}  // namespace ulp::quant
