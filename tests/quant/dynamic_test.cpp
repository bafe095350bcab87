// Dynamic quantization: the operator against PyTorch's own, and the pass.
#include "ulp/quant/weights/dynamic.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "boxed.h"
#include "small_bert.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/operators/ops.h"

namespace ulp::quant {
namespace {

/// PyTorch's dynamic linear layer of 8-bit activations (reduce_range off) with these codes and scales.
at::Tensor pytorch_linear_dynamic(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& scale,
                                  const at::Tensor& bias) {
  at::globalContext().setQEngine(at::QEngine::FBGEMM);
  const at::Tensor weight = at::_make_per_channel_quantized_tensor(codes, scale.to(at::kDouble),
                                                                   at::zeros({scale.size(0)}, at::kLong), 0);
  const c10::IValue packed = boxed("quantized::linear_prepack", "", {weight, bias});
  return boxed("quantized::linear_dynamic", "", {x, packed, false}).toTensor();
}

TEST(LinearDynamic, PerTensorGivesPyTorchsNumbers) {
  torch::manual_seed(1);
  const at::NoGradGuard no_grad;
  for (const auto& [low, high] : {std::pair{-1.0, 3.0}, {-5.0, 0.5}, {0.1, 2.0}, {-4.0, -1.0}, {-1e3, 1e3}}) {
    const at::Tensor x = at::rand({33, 70}) * (high - low) + low;
    const int64_t most = pytorch_saturates() ? 64 : 127;
    const at::Tensor codes = at::randint(-most, most + 1, {41, 70}).to(at::kChar);
    const at::Tensor scale = at::rand({41}) * 0.02 + 0.001, bias = at::randn({41});
    const at::Tensor theirs = pytorch_linear_dynamic(x, codes, scale, bias);
    const at::Tensor ours = linear_dynamic(x, codes, scale, bias, true);
    // The same integers; the products of scales are rounded in another order.
    const double bound = 4 * 0x1p-24 * theirs.abs().max().item<double>();
    EXPECT_LE((theirs - ours).abs().max().item<double>(), bound) << low << " to " << high;
  }
}

TEST(LinearDynamic, EachRowIsATensorOfItsOwn) {
  torch::manual_seed(2);
  const at::Tensor x = at::randn({2, 5, 16}) * at::pow(10.0, at::arange(5)).view({1, 5, 1});
  const at::Tensor codes = at::randint(-127, 128, {7, 16}).to(at::kChar), scale = at::rand({7}) + 0.1;
  const at::Tensor y = linear_dynamic(x, codes, scale, std::nullopt, false);
  ASSERT_EQ(y.sizes(), (at::IntArrayRef{2, 5, 7}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      const at::Tensor row = linear_dynamic(x[i][j].unsqueeze(0), codes, scale, std::nullopt, true);
      EXPECT_TRUE(y[i][j].equal(row[0])) << i << ", " << j;
    }
  }
}

TEST(LinearDynamic, NotFiniteRowsGiveNaN) {
  at::Tensor x = at::ones({3, 4});
  x[1][2] = std::numeric_limits<float>::infinity();
  const at::Tensor codes = at::ones({2, 4}, at::kChar), scale = at::ones({2});
  const at::Tensor y = linear_dynamic(x, codes, scale, at::ones({2}), false);
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
  EXPECT_TRUE(y[0].equal(y[2]) && y[0].equal(at::full({2}, 5.0F)));
}

TEST(LinearDynamic, RefusesOtherShapesAndTypes) {
  const at::Tensor codes = at::ones({2, 4}, at::kChar), scale = at::ones({2});
  EXPECT_THROW(linear_dynamic(at::ones({3, 5}), codes, scale, std::nullopt, false), Error);
  EXPECT_THROW(linear_dynamic(at::ones({3, 4}, at::kInt), codes, scale, std::nullopt, false), Error);
  EXPECT_THROW(linear_dynamic(at::ones({3, 4}), codes.to(at::kInt), scale, std::nullopt, false), Error);
  EXPECT_THROW(linear_dynamic(at::ones({3, 4}), codes, at::ones({3}), std::nullopt, false), Error);
  EXPECT_THROW(linear_dynamic(at::ones({3, 4}), codes, scale, at::ones({1}), false), Error);
}

TEST(QuantizeDynamic, EveryLinearLayerOfBertIsQuantizedAndTheResultIsNear) {
  const at::NoGradGuard no_grad;
  const auto captured = captured_bert(32, 64);
  for (const bool per_tensor : {false, true}) {
    graph::PassReport report;
    const auto quantized = quantize_dynamic(captured, {.per_tensor = per_tensor}, &report);
    EXPECT_EQ(report.changes.size(), 2U * 6 + 2) << "six in each of two blocks, the pooler, the classifier";
    EXPECT_TRUE(report.near_misses.empty());
    quantized->graph().verify();
    const at::Tensor tokens = at::randint(0, 256, {5, 9});
    const at::Tensor expected = captured->forward(tokens), got = quantized->forward(tokens);
    // An 8-bit activation is off by 1 / 510 of its range, a weight by 1 / 254: a signal 100 times the noise
    // after fourteen of them is what independent errors leave room for.
    const double noise = ((got - expected).pow(2).sum() / expected.pow(2).sum()).sqrt().item<double>();
    EXPECT_LE(noise, 0.05) << per_tensor;
    EXPECT_GT(noise, 0) << "it is quantized";
  }
}

struct CapturedText {
  std::shared_ptr<graph::GraphModule> module;
  at::Tensor tokens;
};

/// Its linear layers read the transposes of what they store.
CapturedText captured_gpt2() {
  torch::manual_seed(7);
  models::Gpt2Config config = models::Gpt2Config::tiny();
  config.vocab_size = 50;
  const auto model = models::make_gpt2(config);
  model->eval();
  const at::Tensor tokens = at::randint(0, 50, {3, 9});
  auto captured = capture(model, {tokens});
  captured->eval();
  return {captured, tokens};
}

TEST(QuantizeDynamic, WeightsThatAreStoredTransposedAreTakenToo) {
  const at::NoGradGuard no_grad;
  const auto [captured, tokens] = captured_gpt2();
  graph::PassReport report;
  const auto quantized = quantize_dynamic(captured, {}, &report);
  EXPECT_TRUE(report.near_misses.empty()) << report.near_misses.front();
  EXPECT_EQ(report.changes.front(), "h.0.attn.c_attn quantizes its input as it runs");
  for (const auto& [name, attribute] : quantized->graph().attributes()) {
    EXPECT_FALSE(name.ends_with(".transposed")) << name << " is read by nobody";
  }
  const at::Tensor expected = captured->forward(tokens), got = quantized->forward(tokens);
  const double noise = ((got - expected).pow(2).sum() / expected.pow(2).sum()).sqrt().item<double>();
  EXPECT_LE(noise, 0.05);
  EXPECT_GT(noise, 0) << "it is quantized";
}

TEST(Quantize, WeightsThatAreStoredTransposedAreTakenToo) {
  const at::NoGradGuard no_grad;
  const auto [captured, tokens] = captured_gpt2();
  const auto prepared = prepare(captured, Recipe::x86_int8());
  prepared->forward(tokens);
  const auto quantized = convert(prepared);
  int64_t layers = 0, narrow = 0;
  for (const auto& node : quantized->graph().nodes()) {
    if (!node->is("aten::linear")) continue;
    ++layers;
    if (node->arg("weight").value->producer->is("ulp::dequantize")) ++narrow;
  }
  EXPECT_GT(layers, 4);
  EXPECT_EQ(narrow, layers);
  const at::Tensor expected = captured->forward(tokens), got = quantized->forward(tokens);
  EXPECT_LE(((got - expected).pow(2).sum() / expected.pow(2).sum()).sqrt().item<double>(), 0.1);
}

TEST(QuantizeDynamic, SkipsByNameAndSaysSo) {
  graph::PassReport report;
  const auto quantized = quantize_dynamic(captured_bert(32, 64),
                                          {.skip_modules = {"bert.encoder.layer.1", "classifier"}}, &report);
  EXPECT_EQ(report.changes.size(), 6U + 1);
  ASSERT_EQ(report.near_misses.size(), 7U);
  EXPECT_EQ(report.near_misses.back(), "classifier stays in float: skipped by name");
  EXPECT_THROW(quantize_dynamic(captured_bert(32, 64), {.skip_modules = {"encoder.layer.7"}}), Error);
}

struct Tied : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 6));
  at::Tensor forward(at::Tensor x) { return linear(torch::relu(linear(x))); }
};

struct OnlyRelu : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return torch::relu(x); }
};

TEST(QuantizeDynamic, RefusesWhatHasNothingToQuantizeOrBadWeights) {
  EXPECT_THROW(quantize_dynamic(nullptr), Error);
  auto relu = std::make_shared<OnlyRelu>();
  EXPECT_THROW(quantize_dynamic(capture(relu, {at::ones({2, 3})})), Error);
  auto bad = std::make_shared<Tied>();
  {
    const at::NoGradGuard no_grad;
    bad->parameters()[0][1][2] = std::numeric_limits<float>::quiet_NaN();
  }
  try {
    quantize_dynamic(capture(bad, {at::ones({2, 6})}));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1 NaN and 0 infinite values in 'linear.weight'"),
              std::string::npos)
        << error.what();
  }
}

TEST(QuantizeDynamic, LayersThatShareAWeightShareItsCodes) {
  torch::manual_seed(4);
  auto model = std::make_shared<Tied>();
  const auto quantized = quantize_dynamic(capture(model, {at::randn({2, 6})}));
  int codes = 0;
  for (const auto& [name, attribute] : quantized->graph().attributes()) {
    codes += attribute.tensor.scalar_type() == at::kChar;
  }
  EXPECT_EQ(codes, 1);
}

}  // namespace
}  // namespace ulp::quant
