// Rotation of the residual stream: the network stays what it is, outliers spread, and what cannot be rotated
// is refused.
#include "ulp/quant/methods/rotate_residual.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/decoder.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/quantize_model.h"
#include "ulp/quant/weights/mixed_precision.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using graph::GraphModule;

/// Norms that are not one, and biases that are not zero.
void shake(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    Tensor p = item.value();
    if (p.dim() == 1)
      p.add_(0.3 * at::randn_like(p));
    else
      p.mul_(3);
  }
}

std::shared_ptr<GraphModule> captured_decoder(const models::DecoderConfig& config, const Tensor& tokens) {
  torch::manual_seed(5);
  const auto model = models::make_decoder(config);
  shake(*model);
  model->eval();
  auto captured = capture(model, {tokens});
  captured->eval();
  return captured;
}

models::DecoderConfig small_decoder(int64_t width = 48) {
  models::DecoderConfig config = models::DecoderConfig::tiny();
  config.width = width;
  config.head_size = 12;
  config.intermediate = 56;
  config.vocab_size = 60;
  config.max_length = 32;
  return config;
}

/// Each number of the result is a sum of products of f32: rounding grows with the sizes and the layers.
void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  const double largest = expected.abs().max().item<double>();
  EXPECT_LT((got - expected).abs().max().item<double>(), 1e-5 * largest * 64) << what;
  const Tensor d = (got - expected).to(at::kDouble);
  EXPECT_LT((d.norm() / expected.to(at::kDouble).norm()).item<double>(), 2e-6) << what;
}

TEST(RotateResidual, TheMatrixIsOrthogonal) {
  for (const bool keeps_mean : {false, true}) {
    for (const int64_t width : {1, 2, 3, 8, 12, 20, 48, 96, 127, 128}) {
      const Tensor q = rotation_matrix(width, keeps_mean);
      const double slack = 1e-14 * static_cast<double>(width);
      EXPECT_LT((q.matmul(q.t()) - at::eye(width, at::kDouble)).abs().max().item<double>(), slack);
      if (!keeps_mean) continue;
      EXPECT_LT((q.sum(0) - 1).abs().max().item<double>(), slack);
      EXPECT_LT((q.sum(1) - 1).abs().max().item<double>(), slack);
    }
  }
  EXPECT_LT((rotation_matrix(64).abs() - 0.125).abs().max().item<double>(), 1e-15);
  EXPECT_LT(rotation_matrix(256, true).abs().max().item<double>(), 6.0 / 16);
  EXPECT_ERROR(rotation_matrix(0), "expected a width of at least 1, got 0");
}

TEST(RotateResidual, DecodersStayWhatTheyAre) {
  const Tensor tokens = at::randint(0, 60, {2, 11});
  std::vector<std::pair<std::string, models::DecoderConfig>> cases = {{"plain", small_decoder()}};
  const auto add = [&](const std::string& name, auto change) {
    cases.emplace_back(name, small_decoder());
    change(cases.back().second);
  };
  add("tied", [](auto& config) { config.tied_embeddings = true; });
  add("fused", [](auto& config) { config.fused_projections = true; });
  add("biases", [](auto& config) { config.qkv_bias = config.output_bias = config.mlp_bias = true; });
  add("gemma", [](auto& config) {
    config.unit_offset_norms = config.tied_embeddings = true;
    config.embedding_scale = std::sqrt(48.0);
  });
  add("qk_norms", [](auto& config) { config.qk_norms = true; });
  add("layer_norms", [](auto& config) { config.layer_norms = true; });
  add("layer_norms, biases", [](auto& config) {
    config.layer_norms = config.qkv_bias = config.mlp_bias = config.tied_embeddings = true;
  });
  add("odd", [](auto& config) { config.width = 45; });
  add("caps", [](auto& config) { config.attention_softcap = 20, config.logit_softcap = 30; });
  for (const auto& [name, config] : cases) {
    const auto captured = captured_decoder(config, tokens);
    graph::PassReport report;
    const auto rotated = rotate_residual(captured, &report);
    const at::NoGradGuard no_grad;
    const Tensor expected = captured->forward(tokens);
    expect_close(rotated->forward(tokens), expected, name);
    ASSERT_EQ(report.changes.size(), 1U) << name;
    EXPECT_SAYS(report.changes[0], "channels is rotated");
    EXPECT_SAYS(report.changes[0], "5 norms");
    // The weights did turn.
    const graph::Attribute* before = captured->graph().find_attribute("model.layers.0.mlp.down_proj.weight");
    const graph::Attribute* after = rotated->graph().find_attribute("model.layers.0.mlp.down_proj.weight");
    ASSERT_TRUE(before != nullptr && after != nullptr) << name;
    EXPECT_GT((before->tensor - after->tensor).abs().max().item<double>(), 0.01) << name;
    EXPECT_TRUE(captured->forward(tokens).equal(expected)) << "the captured model stays as it is";
  }
}

TEST(RotateResidual, Gpt2StaysWhatItIs) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(7);
  models::Gpt2Config config = models::Gpt2Config::tiny();
  const auto model = models::make_gpt2(config);
  shake(*model);
  model->eval();
  const Tensor tokens = at::randint(0, 256, {2, 11});
  const auto captured = capture(model, {tokens});
  captured->eval();
  const Tensor expected = captured->forward(tokens);
  expect_close(rotate_residual(captured)->forward(tokens), expected, "gpt2");
}

/// A channel of the stream that is large everywhere, as trained decoders have.
std::shared_ptr<GraphModule> with_outliers(const Tensor& tokens) {
  models::DecoderConfig config = small_decoder(64);
  config.head_size = 16;
  torch::manual_seed(6);
  const auto model = models::make_decoder(config);
  shake(*model);
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters()) {
      if (item.key().find("embed_tokens") == std::string::npos) continue;
      Tensor table = item.value();
      table.select(1, 7).add_(6);
      table.select(1, 40).sub_(4);
    }
  }
  model->eval();
  auto captured = capture(model, {tokens});
  captured->eval();
  return captured;
}

double relative_error(const Tensor& got, const Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

TEST(RotateResidual, OutliersCostLess) {
  const at::NoGradGuard no_grad;
  const Tensor tokens = at::randint(0, 60, {8, 16});
  const auto captured = with_outliers(tokens);
  const Tensor expected = captured->forward(tokens);
  const Calibrate feed = [&](GraphModule& model) { model.forward(tokens); };
  Recipe recipe = Recipe::x86_int8();
  const double plain = relative_error(quantize(captured, recipe, feed)->forward(tokens), expected);
  recipe.methods.method = {"rotate"};
  const double rotated = relative_error(quantize(captured, recipe, feed)->forward(tokens), expected);
  EXPECT_LT(rotated, 0.6 * plain) << plain;
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
}

TEST(RotateResidual, WeightOnlyRecipesTakeIt) {
  const at::NoGradGuard no_grad;
  const Tensor tokens = at::randint(0, 60, {4, 11});
  const auto captured = captured_decoder(small_decoder(), tokens);
  const CalibrationData data = [&](const RunBatch& run) { run({tokens}); };
  for (const WeightMethod method : {WeightMethod::rtn, WeightMethod::gptq, WeightMethod::hqq}) {
    WeightOnlyRecipe recipe{.bits = 8, .group = 16, .method = method, .rotate = true};
    EXPECT_EQ(WeightOnlyRecipe::from_json(recipe.to_json()), recipe);
    graph::PassReport report;
    const auto model = quantize_weights(captured, recipe, data, &report);
    EXPECT_SAYS(report.changes.at(0), "the residual stream of 48 channels is rotated");
    recipe.rotate = false;
    const auto want = quantize_weights(rotate_residual(captured), recipe, data);
    EXPECT_TRUE(model->forward(tokens).equal(want->forward(tokens)));
    EXPECT_LT(relative_error(model->forward(tokens), captured->forward(tokens)), 0.05);
  }
  WeightOnlyRecipe searching{.bits = 4, .rotate = true};
  searching.search.emplace();
  searching.search->max_loss = 0.001;
  searching.search->candidates = {"8", "4/16"};
  const MixedPrecision found = search_mixed_precision(captured, searching, data);
  EXPECT_TRUE(found.recipe.rotate);
  EXPECT_TRUE(
      quantize_weights(captured, found.recipe, data)->forward(tokens).equal(found.model->forward(tokens)));
}

TEST(RotateResidual, WhatCannotBeRotatedIsRefusedByName) {
  const Tensor tokens = at::randint(0, 60, {2, 11});
  models::DecoderConfig config = small_decoder();
  config.post_norms = true;
  EXPECT_ERROR(rotate_residual(captured_decoder(config, tokens)), "a norm between a layer and the stream");
  EXPECT_ERROR(rotate_residual(captured_bert(32, 48)), "expected a residual stream that can be rotated, got");
  torch::nn::Linear layer(8, 4);
  EXPECT_ERROR(rotate_residual(capture(layer, {torch::randn({2, 8})})),
               "expected a model with an embedding, got none");
  EXPECT_ERROR(rotate_residual(nullptr), "expected a captured model, got null");
  const auto captured = captured_decoder(small_decoder(), tokens);
  {
    const at::NoGradGuard no_grad;
    captured->graph().find_attribute("model.layers.0.mlp.down_proj.weight")->tensor[0][0] = NAN;
  }
  EXPECT_ERROR(rotate_residual(captured), "'model.layers.0.mlp.down_proj.weight' has NaN or infinite values");
  EXPECT_ERROR(quantize_weights(captured_bert(32, 48), {.bits = 4, .rotate = true}),
               "[quant.rotate_residual]");
}

struct StreamNetImpl : torch::nn::Module {
  explicit StreamNetImpl(int way) : way(way) {
    words = register_module("words", torch::nn::Embedding(20, 16));
    up = register_module("up", torch::nn::Linear(16, 16));
    down = register_module("down", torch::nn::Linear(16, 16));
    head = register_module("head", torch::nn::Linear(16, 20));
    weight = register_parameter("weight", torch::rand({16}) + 0.5);
  }
  Tensor norm(const Tensor& x) { return at::rms_norm(x, {16}, weight, 1e-5); }
  Tensor forward(const Tensor& ids) {
    Tensor x = words->forward(ids);
    const Tensor n = norm(x);
    Tensor y = x + 0.5 * down->forward(torch::relu(up->forward(n)));
    if (way == 1) y = y + 3;
    if (way == 2) y = torch::relu(y);
    if (way == 3) y = y + n;
    if (way == 4) return norm(y);
    if (way == 5) return head->forward(norm(y)) + y.narrow(-1, 0, 1);
    if (way == 6) y = y + up->forward(norm(y));  // the layer writes, too
    if (way == 7) y = y.narrow(1, 0, 2);
    return head->forward(norm(y));
  }
  int way;
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
  Tensor weight;
};
TORCH_MODULE(StreamNet);

/// A layer reads a layer norm and writes into the stream.
struct LoneLayerImpl : torch::nn::Module {
  explicit LoneLayerImpl(bool biased) {
    words = register_module("words", torch::nn::Embedding(20, 16));
    both = register_module("both", torch::nn::Linear(torch::nn::LinearOptions(16, 16).bias(biased)));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(16, 20).bias(biased)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = words->forward(ids);
    x = x + both->forward(norm->forward(x)) + 0.5 * both->forward(x);
    return head->forward(norm->forward(x));
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear both{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(LoneLayer);

TEST(RotateResidual, BiasesOfLayerNormsAreRotatedWhereTheirReaderWrites) {
  const at::NoGradGuard no_grad;
  const Tensor ids = at::randint(0, 20, {3, 5});
  for (const bool biased : {false, true}) {
    torch::manual_seed(21);
    LoneLayer net(biased);
    shake(*net);
    net->eval();
    const auto captured = capture(net, {ids});
    expect_close(rotate_residual(captured)->forward(ids), captured->forward(ids),
                 biased ? "with a bias" : "without a bias");
  }
}

/// Networks of other making: rotated right, or refused.
TEST(RotateResidual, OtherNetworksAreRightOrRefused) {
  const at::NoGradGuard no_grad;
  const Tensor ids = at::randint(0, 20, {3, 5});
  const std::vector<std::string> refused = {"",
                                            "adds one number to all channels",
                                            "whose result is added to the stream",
                                            "a norm between a layer and the stream",
                                            "which reads the norm",
                                            "which reads the stream",
                                            "",
                                            "which reads the stream"};
  for (int way = 0; way < static_cast<int>(refused.size()); ++way) {
    torch::manual_seed(10 + way);
    StreamNet net(way);
    net->eval();
    const auto captured = capture(net, {ids});
    if (!refused[static_cast<size_t>(way)].empty()) {
      EXPECT_SAYS(ulp::test::error_of([&] { rotate_residual(captured); }),
                  "expected a residual stream that can be rotated")
          << way;
      continue;
    }
    expect_close(rotate_residual(captured)->forward(ids), captured->forward(ids), std::to_string(way));
  }
}

}  // namespace
}  // namespace ulp::quant
