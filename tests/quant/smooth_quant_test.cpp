// SmoothQuant: scales by their definition, where 1 / s goes, and what is left as it is.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/methods/scale_channels.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::quant {
namespace {

using at::Tensor;

/// A norm that two layers read, a relu between two layers, and a curve before the last one.
struct SmoothBlock : torch::nn::Module {
  SmoothBlock() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({24})));
    query = register_module("query", torch::nn::Linear(24, 16));
    key = register_module("key", torch::nn::Linear(24, 16));
    up = register_module("up", torch::nn::Linear(16, 32));
    down = register_module("down", torch::nn::Linear(32, 16));
    last = register_module("last", torch::nn::Linear(16, 8));
    torch::nn::init::uniform_(norm->weight, 0.5, 1.5);
    torch::nn::init::uniform_(norm->bias, -0.5, 0.5);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = norm(x);
    return last(torch::gelu(down(torch::relu(up(torch::sigmoid(query(y) * key(y)))))));
  }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, up{nullptr}, down{nullptr}, last{nullptr};
};

/// Channels of the norm far larger than the others, whose columns behind are as much smaller.
void plant_outliers(SmoothBlock& model) {
  const at::NoGradGuard no_grad;
  for (const int64_t channel : {3, 11, 17}) {
    const double size = 30 + 4 * static_cast<double>(channel);
    model.norm->weight.select(0, channel).mul_(size);
    model.norm->bias.select(0, channel).mul_(size);
    for (const torch::nn::Linear& layer : {model.query, model.key})
      layer->weight.select(1, channel).div_(size);
  }
}

Calibrate feed_of(const std::vector<Tensor>& batches) {
  return [batches](graph::GraphModule& model) {
    for (const Tensor& batch : batches) model.forward(batch);
  };
}

Tensor weight_of(const graph::GraphModule& model, const std::string& scope) {
  for (const auto& node : model.graph().nodes()) {
    if (node->is("aten::linear") && node->scope == scope)
      return model.graph().attribute_tensor(node->arg("weight").value);
  }
  return {};
}

const graph::Node* node_of(const graph::GraphModule& model, const char* op) {
  for (const auto& node : model.graph().nodes()) {
    if (node->is(op)) return node.get();
  }
  return nullptr;
}

Recipe smooth_recipe(const std::string& alpha) {
  Recipe recipe = Recipe::x86_int8();
  recipe.methods.method = {"smoothquant"};
  recipe.methods.smoothquant_alpha = SmoothAlpha::from_text(alpha).value();
  return recipe;
}

double distance(const Tensor& a, const Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

TEST(SmoothQuant, ScalesAreThoseOfTheDefinition) {
  const at::NoGradGuard no_grad;
  for (const double alpha : {0.0, 0.3, 0.5, 1.0}) {
    torch::manual_seed(5);
    SmoothBlock model;
    plant_outliers(model);
    const std::vector<Tensor> batches = {torch::randn({20, 24}), torch::randn({33, 24})};
    const auto captured = capture(model, {batches[0]});
    Recipe recipe = smooth_recipe("0.5");
    recipe.methods.smoothquant_alpha.value = alpha;
    graph::PassReport report;
    const auto smooth = smooth_quant(captured, feed_of(batches), recipe, &report);
    smooth->graph().verify();
    const Tensor y = model.norm(at::cat(batches));
    for (int64_t j = 0; j < 24; ++j) {
      double x = 0, w = 0;
      for (int64_t i = 0; i < y.size(0); ++i) x = std::max<double>(x, std::abs(y[i][j].item<float>()));
      for (const torch::nn::Linear& layer : {model.query, model.key}) {
        for (int64_t o = 0; o < 16; ++o) w = std::max<double>(w, std::abs(layer->weight[o][j].item<float>()));
      }
      const double s = std::pow(x, alpha) / std::pow(w, 1 - alpha);
      const double bound = 4 * 0x1p-24;  // s, its inverse and the product are rounded
      const auto expect_times = [&](const Tensor& after, const Tensor& before, double by) {
        const double wanted = before.item<double>() * by;
        EXPECT_NEAR(after.item<double>(), wanted, bound * std::abs(wanted)) << j;
      };
      expect_times(weight_of(*smooth, "query")[5][j], model.query->weight[5][j], s);
      expect_times(weight_of(*smooth, "key")[0][j], model.key->weight[0][j], s);
      const graph::Node& norm = *node_of(*smooth, "aten::layer_norm");
      expect_times(smooth->graph().attribute_tensor(norm.arg("weight").value)[j], model.norm->weight[j],
                   1 / s);
      expect_times(smooth->graph().attribute_tensor(norm.arg("bias").value)[j], model.norm->bias[j], 1 / s);
    }
    const Tensor x = torch::randn({40, 24});
    EXPECT_LT(distance(smooth->forward(x), captured->forward(x)), 1e-5)
        << "the same network but for rounding";
  }
}

TEST(SmoothQuant, ChannelsOfTheSmallestNumbersStayFinite) {
  const at::NoGradGuard no_grad;
  for (const double tiny : {1e-19, 1e-30, 1e-38, 1e-42, 1e-45}) {
    for (const std::string alpha : {"0", "0.5", "1", "auto"}) {
      torch::manual_seed(8);
      SmoothBlock model;
      for (const torch::nn::Linear& layer : {model.query, model.key}) layer->weight.select(1, 4).fill_(tiny);
      model.norm->weight[9] = tiny;
      model.norm->bias[9] = 0;
      const Tensor x = torch::randn({40, 24});
      const auto captured = capture(model, {x});
      captured->eval();
      const auto smooth = smooth_quant(captured, feed_of({x}), smooth_recipe(alpha));
      EXPECT_LT(distance(smooth->forward(x), captured->forward(x)), 1e-5) << tiny << ' ' << alpha;
    }
  }
}

TEST(SmoothQuant, SaysWhereTheScaleIsAndWhatIsLeftOut) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(6);
  SmoothBlock model;
  const std::vector<Tensor> batches = {torch::randn({40, 24})};
  const auto captured = capture(model, {batches[0]});
  graph::PassReport report;
  smooth_quant(captured, feed_of(batches), smooth_recipe("0.5"), &report);
  ASSERT_EQ(report.changes.size(), 3U);
  EXPECT_EQ(report.changes[0], "query: smoothquant with alpha 0.5, 1 / s is in norm");
  EXPECT_EQ(report.changes[1], "key: smoothquant with alpha 0.5, 1 / s is in norm");
  EXPECT_EQ(report.changes[2], "down: smoothquant with alpha 0.5, 1 / s is in up");
  ASSERT_EQ(report.near_misses.size(), 2U);
  EXPECT_SAYS(report.near_misses[0],
              "up: smoothquant leaves it as it is: nothing takes 1 / s before aten::sigmoid");
  EXPECT_SAYS(report.near_misses[1],
              "last: smoothquant leaves it as it is: nothing takes 1 / s before aten::gelu");
  Recipe skipping = smooth_recipe("0.5");
  skipping.skip_modules = {"key", "down"};
  const auto part = smooth_quant(captured, feed_of(batches), skipping, &report);
  EXPECT_TRUE(report.changes.empty()) << "key reads what query reads";
  EXPECT_SAYS(report.near_misses[0], "query: smoothquant leaves it as it is: its input '");
  EXPECT_SAYS(report.near_misses[0], "is also read by aten::linear");
  EXPECT_TRUE(part->forward(batches[0]).equal(captured->forward(batches[0])));
}

/// Outliers make int8 activations useless; the scales bring them back.
TEST(SmoothQuant, BringsBackWhatOutliersCost) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(7);
  SmoothBlock model;
  plant_outliers(model);
  std::vector<Tensor> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(torch::randn({64, 24}));
  const auto captured = capture(model, {batches[0]});
  const Tensor x = torch::randn({256, 24});
  const auto loss = [&](const Recipe& recipe) {
    return distance(quantize(captured, recipe, feed_of(batches))->forward(x), captured->forward(x));
  };
  Recipe plain = Recipe::x86_int8();
  plain.activation.observer = ObserverKind::min_max;
  Recipe half = smooth_recipe("0.5"), searched = smooth_recipe("auto");
  half.activation.observer = searched.activation.observer = ObserverKind::min_max;
  const double before = loss(plain);
  EXPECT_LT(loss(half), 0.35 * before);
  EXPECT_LT(loss(searched), 0.35 * before);
}

TEST(SmoothQuant, TheSearchTakesTheLeastError) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(8);
  SmoothBlock model;
  plant_outliers(model);
  const std::vector<Tensor> batches = {torch::randn({200, 24})};
  const auto captured = capture(model, {batches[0]});
  graph::PassReport report;
  smooth_quant(captured, feed_of(batches), smooth_recipe("auto"), &report);
  const Tensor y = model.norm(batches[0]), large = at::amax(y.abs(), 0);
  const Tensor columns =
      at::maximum(at::amax(model.query->weight.abs(), 0), at::amax(model.key->weight.abs(), 0));
  double least = 1e30, best = -1;
  for (int i = 0; i <= 10; ++i) {
    const double alpha = i / 10.0;
    const Tensor s = large.pow(alpha) / columns.pow(1 - alpha), x = y / s;
    const double low = x.min().item<double>(), step = (x.max().item<double>() - low) / 255;
    const Tensor rounded = (x / step).round() * step;
    double error = 0;
    for (const torch::nn::Linear& layer : {model.query, model.key}) {
      const Tensor w = layer->weight * s, steps = at::amax(w.abs(), 1, true) / 127;
      error += (at::linear(rounded, (w / steps).round() * steps) - at::linear(y, layer->weight))
                   .square()
                   .sum()
                   .item<double>();
    }
    if (error < least) {
      least = error;
      best = alpha;
    }
  }
  char text[8];
  std::snprintf(text, sizeof text, "%g", best);
  EXPECT_SAYS(report.changes[0], std::string("alpha ") + text + ",");
}

TEST(SmoothQuant, NetworksOfTheRegistryStayWhatTheyAre) {
  const at::NoGradGuard no_grad;
  const auto bert = captured_bert(32, 64);
  const Tensor tokens = at::randint(0, 256, {2, 9});
  const Calibrate feed = [&](graph::GraphModule& model) { model.forward(tokens); };
  graph::PassReport report;
  const auto smooth = smooth_quant(bert, feed, smooth_recipe("auto"), &report);
  EXPECT_LT(distance(smooth->forward(tokens), bert->forward(tokens)), 1e-5);
  torch::manual_seed(2);
  const auto model = models::make_gpt2(models::Gpt2Config::tiny());
  model->eval();
  const Tensor text = at::randint(0, 256, {2, 12});
  const auto gpt2 = capture(model, {text});
  const Calibrate words = [&](graph::GraphModule& one) { one.forward(text); };
  const auto smoothed = smooth_quant(gpt2, words, smooth_recipe("0.5"), &report);
  EXPECT_LT(distance(smoothed->forward(text), gpt2->forward(text)), 1e-5);
  EXPECT_SAYS(report.changes[0], "1 / s is in h.0.ln_1");
}

TEST(SmoothQuant, BadInputIsSaidByName) {
  const at::NoGradGuard no_grad;
  SmoothBlock model;
  const Tensor x = torch::randn({8, 24});
  const auto captured = capture(model, {x});
  const Recipe recipe = smooth_recipe("0.5");
  const auto error = [&](const Calibrate& data) {
    return ulp::test::error_of([&] { smooth_quant(captured, data, recipe); });
  };
  EXPECT_SAYS(error({}), "expected a function that runs calibration data, got none");
  EXPECT_SAYS(error([](graph::GraphModule&) {}), "expected rows of calibration data for 'query', got none");
  Tensor bad = x.clone();
  bad[2][3] = NAN;
  EXPECT_SAYS(error(feed_of({bad})), "expected finite inputs of 'query', got 24 NaN and 0 infinite values");
  for (const char* alpha : {"-0.1", "1.5", "nan", "high", "", "0.5x"})
    EXPECT_FALSE(SmoothAlpha::from_text(alpha)) << alpha;
  const auto invalid = [](auto change) {
    Recipe other = Recipe::x86_int8();
    change(other);
    return ulp::test::error_of([&] { other.validate(); });
  };
  EXPECT_SAYS(invalid([](Recipe& one) { one.methods.method = {"smooth"}; }),
              "expected method rotate, cle, smoothquant, adaround or bias_correction, got 'smooth'");
  EXPECT_SAYS(invalid([](Recipe& one) {
                one.methods.method = {"cle", "cle"};
              }),
              "expected each method once, got 'cle' twice");
  EXPECT_SAYS(invalid([](Recipe& one) { one.methods.smoothquant_alpha.searched = true; }),
              "expected the method smoothquant for smoothquant_alpha");
  EXPECT_SAYS(invalid([](Recipe& one) {
                one.methods.method = {"smoothquant"};
                one.methods.smoothquant_alpha.value = NAN;
              }),
              "expected smoothquant_alpha of a number in [0, 1] or auto, got nan");
  EXPECT_SAYS(ulp::test::error_of([&] { prepare(captured, recipe); }),
              "expected a recipe without methods, which quantize() runs with its data, got smoothquant");
  QatRecipe training{.tensors = recipe};
  EXPECT_SAYS(ulp::test::error_of([&] { training.validate(); }),
              "expected no methods of static quantization where a network is trained, got smoothquant");
}

TEST(SmoothQuant, RecipesKeepMethods) {
  Recipe recipe = smooth_recipe("auto");
  recipe.methods.method = {"smoothquant", "cle"};
  recipe.methods.replace_relu6 = true;
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
  const Recipe read = Recipe::from_json(
      R"({"type": "ulp.quant.Recipe", "version": 5, "method": ["smoothquant"], "smoothquant_alpha": "0.25"})");
  EXPECT_EQ(read.methods, smooth_recipe("0.25").methods);
}

}  // namespace
}  // namespace ulp::quant
