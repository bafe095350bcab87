// Weight-only quantization: the operator, packing, and the pass.
#include "ulp/quant/weights/weights.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

TEST(DequantizeWeight, ReadsTheLowHalfFirst) {
  const at::Tensor codes = at::tensor({0x21, 0x43, 0xf0, 0x08}, at::kByte).view({1, 2, 2});
  const at::Tensor scale = at::tensor({1.0F, 0.5F}).view({1, 2});
  EXPECT_TRUE(dequantize_weight(codes, scale, std::nullopt, 8)
                  .equal(at::tensor({-7.0F, -6.0F, -5.0F, -4.0F, -4.0F, 3.5F, 0.0F, -4.0F}).view({1, 8})));
  const at::Tensor zero = at::tensor({1, 15}, at::kByte).view({1, 2});
  EXPECT_TRUE(dequantize_weight(codes, scale, zero, 7)
                  .equal(at::tensor({0.0F, 1.0F, 2.0F, 3.0F, -7.5F, 0.0F, -3.5F}).view({1, 7})));
  EXPECT_THROW(dequantize_weight(codes, scale, zero, 9), Error);
  EXPECT_THROW(dequantize_weight(codes, scale, zero, 4), Error);
  EXPECT_THROW(dequantize_weight(codes, scale.narrow(1, 0, 1), std::nullopt, 8), Error);
  EXPECT_THROW(dequantize_weight(codes.to(at::kInt), scale, std::nullopt, 8), Error);
}

TEST(DequantizeWeight, EightBitsMayHaveGroups) {
  const at::Tensor codes = at::tensor({-128, 127, 3, 5}, at::kChar).view({1, 2, 2});
  const at::Tensor scale = at::tensor({1.0F, 0.5F}).view({1, 2});
  EXPECT_TRUE(dequantize_weight(codes, scale, std::nullopt, 4)
                  .equal(at::tensor({-128.0F, 127.0F, 1.5F, 2.5F}).view({1, 4})));
  EXPECT_TRUE(dequantize_weight(codes, scale, std::nullopt, 3)
                  .equal(at::tensor({-128.0F, 127.0F, 1.5F}).view({1, 3})));
  EXPECT_THROW(dequantize_weight(codes, scale.narrow(1, 0, 1), std::nullopt, 4), Error);
  EXPECT_THROW(dequantize_weight(codes, scale, std::nullopt, 2), Error);
  EXPECT_THROW(dequantize_weight(codes, scale, scale.to(at::kByte), 4), Error);
}

TEST(DequantizeWeight, SubtractsMinima) {
  const at::Tensor codes = at::tensor({0x21, 0x43, 0xf0, 0x08}, at::kByte).view({1, 2, 2});
  const at::Tensor scale = at::tensor({0.1F, 0.0F}).view({1, 2}),
                   minimum = at::tensor({0.7F, -3.0F}).view({1, 2});
  const auto values = [&](const std::optional<at::Tensor>& zero, const at::Tensor& own) {
    return dequantize_weight(
        {.codes = codes, .scale = scale, .zero_point = zero, .columns = 7, .minimum = own});
  };
  const at::Tensor products = at::tensor({1.0F, 2.0F, 3.0F, 4.0F}) * 0.1F;  // rounded on their own
  EXPECT_TRUE(
      values(std::nullopt, minimum).equal(at::cat({products - 0.7F, at::full({3}, 3.0F)}).view({1, 7})));
  EXPECT_ERROR(values(at::ones({1, 2}, at::kByte), minimum), "beside zero points");
  EXPECT_ERROR(values(std::nullopt, minimum.view({2})), "expected a minimum f32 [1, 2]");
  EXPECT_ERROR(values(std::nullopt, minimum.to(at::kDouble)), "got Double [1, 2]");
  EXPECT_ERROR(dequantize_weight(codes.to(at::kChar), scale, std::nullopt, 4, minimum), "of 8 bits");
}

/// Files of before hold calls of four arguments.
TEST(DequantizeWeight, CallsWithoutMinimaRemainCalls) {
  graph::Graph graph;
  graph.set_attribute("codes", {graph::Attribute::Kind::buffer, at::ones({1, 2, 2}, at::kByte)});
  graph.set_attribute("scale", {graph::Attribute::Kind::buffer, at::ones({1, 2})});
  const graph::Node* node = graph.call(
      "ulp::dequantize_weight",
      {graph.attribute("codes"), graph.attribute("scale"), c10::IValue(), c10::IValue(int64_t{8})});
  EXPECT_TRUE(node->arg("minimum").is_none());
}

TEST(WeightRecipe, SaysBitsGroupsAndZeroPoints) {
  Recipe recipe = Recipe::weight_only();
  recipe.validate();
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
  WeightOptions options = weight_options(recipe);
  EXPECT_EQ(options.bits, 4);
  EXPECT_EQ(options.group, 32);
  EXPECT_FALSE(options.affine);
  recipe.skip_modules = {"fc"};
  recipe.weight.scheme = {.bits = 4, .granularity = PerGroup{64}};
  options = weight_options(recipe);
  EXPECT_TRUE(options.affine);
  EXPECT_EQ(options.group, 64);
  EXPECT_EQ(options.skip_modules, recipe.skip_modules);
  recipe.weight.scheme = Recipe::x86_int8().weight.scheme;
  EXPECT_EQ(weight_options(recipe).bits, 8);
  for (const WeightOptions& own :
       {WeightOptions{.bits = 3, .group = 16}, WeightOptions{.bits = 2, .group = 8, .affine = true},
        WeightOptions{.bits = 4, .group = -1}, WeightOptions{.bits = 3, .group = -1, .affine = true}}) {
    recipe.weight.scheme = own.scheme();
    WeightOptions read = weight_options(recipe);
    read.skip_modules.clear();
    EXPECT_EQ(read, own) << own.scheme().to_string();
  }
}

TEST(WeightRecipe, WhatItCannotSayIsRefused) {
  EXPECT_ERROR(weight_options(Recipe::x86_int8()), "got one of x86_int8");
  Recipe recipe = Recipe::weight_only();
  recipe.weight.scheme.bits = 5;
  EXPECT_ERROR(weight_options(recipe), "got s5 symmetric restricted");
  recipe = Recipe::weight_only();
  recipe.weight.observer = ObserverKind::mse;
  EXPECT_ERROR(weight_options(recipe), "other fields");
  recipe = Recipe::weight_only();
  recipe.weight.scheme.granularity = PerGroup{7};
  EXPECT_ERROR(weight_options(recipe), "even group");
  torch::nn::Linear layer(8, 4);
  EXPECT_ERROR(prepare(capture(layer, {torch::randn({2, 8})}), Recipe::weight_only()),
               "activations in float");
}

TEST(QuantizeWeights, LayersReadExactlyTheQuantizedNumbers) {
  const at::NoGradGuard no_grad;
  const auto captured = captured_bert(64, 96);
  for (const WeightOptions& options :
       {WeightOptions{}, WeightOptions{.bits = 4}, WeightOptions{.bits = 4, .group = 22, .affine = true},
        WeightOptions{.bits = 4, .group = -1}}) {
    graph::PassReport report;
    const auto quantized = quantize_weights(captured, options, &report);
    quantized->graph().verify();
    EXPECT_EQ(report.changes.size(), 2U * 6 + 2 + 1) << "linear layers and the words";
    int seen = 0;
    for (const auto& node : quantized->graph().nodes()) {
      if (!node->is("ulp::dequantize_weight")) continue;
      const auto tensor = [&](const char* name) {
        return quantized->graph().attribute_tensor(node->arg(name).value);
      };
      const std::string name = node->arg("scale").value->producer->target();
      const at::Tensor weight =
          captured->graph().find_attribute(name.substr(0, name.size() - 6))->tensor.detach();
      Scheme scheme{.bits = options.bits, .granularity = PerChannel{0}};
      if (options.bits == 4 && options.group > 0) scheme.granularity = PerGroup{options.group};
      if (!options.affine) {
        scheme.is_signed = true;
        scheme.mapping = Mapping::symmetric;
        scheme.range = Range::restricted;
      }
      const at::Tensor expected = quantize_dequantize(weight, qparams_of(weight, scheme));
      const std::optional<at::Tensor> zero =
          options.affine ? std::optional(tensor("zero_point")) : std::nullopt;
      EXPECT_TRUE(dequantize_weight(tensor("codes"), tensor("scale"), zero, weight.size(1)).equal(expected))
          << name;
      ++seen;
    }
    EXPECT_EQ(seen, 15);
  }
}

TEST(QuantizeWeights, TwoAndThreeBitsLieInCodesOfFour) {
  const at::NoGradGuard no_grad;
  torch::nn::Linear layer(24, 6);
  const auto captured = capture(layer, {torch::randn({2, 24})});
  for (const int64_t bits : {2, 3}) {
    for (const bool affine : {false, true}) {
      const WeightOptions options{.bits = bits, .group = 8, .affine = affine};
      const auto quantized = quantize_weights(captured, options);
      const auto buffers = quantized->named_buffers();
      const std::optional<at::Tensor> zero =
          affine ? std::optional(buffers["weight.zero_point"]) : std::nullopt;
      const at::Tensor values = dequantize_weight(buffers["weight.int4"], buffers["weight.scale"], zero, 24);
      EXPECT_TRUE(values.equal(
          quantize_dequantize(layer->weight.detach(), qparams_of(layer->weight, options.scheme()))));
      const at::Tensor steps = values.view({6, 3, 8}) / buffers["weight.scale"].unsqueeze(2);
      EXPECT_LT((steps.amax(2) - steps.amin(2)).max().item<float>(), static_cast<float>(1 << bits) - 0.5F);
    }
  }
}

/// Layers as GPT-2's published code has them: weights [in, out], products rather than linear().
struct Products : torch::nn::Module {
  at::Tensor first = register_parameter("first", torch::randn({12, 20}));
  at::Tensor bias = register_parameter("bias", torch::randn({20}));
  at::Tensor second = register_parameter("second", torch::randn({20, 7}));
  at::Tensor third = register_parameter("third", torch::randn({7, 5}));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor flat = at::addmm(bias, x.view({-1, 12}), first).view({x.size(0), 3, 20});
    return at::matmul(at::relu(at::matmul(flat, second)), third) + at::ones({5});
  }
};

TEST(QuantizeWeights, ProductsWithStoredMatricesAreLayers) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(5);
  Products model;
  const at::Tensor x = torch::randn({4, 3, 12});
  const auto captured = capture(model, {x});
  for (const WeightOptions& options : {WeightOptions{}, WeightOptions{.bits = 4, .group = 8}}) {
    graph::PassReport report;
    const auto quantized = quantize_weights(captured, options, &report);
    quantized->graph().verify();
    EXPECT_EQ(report.changes.size(), 3U);
    Scheme scheme = options.scheme();
    Products rounded;
    for (const auto& item : model.named_parameters()) {
      const bool matrix = item.value().dim() == 2;
      const at::Tensor turned = matrix ? item.value().t().contiguous() : item.value();
      rounded.named_parameters()[item.key()].copy_(
          matrix ? quantize_dequantize(turned, qparams_of(turned, scheme)).t() : turned);
    }
    EXPECT_TRUE(torch::allclose(quantized->forward(x), rounded.forward(x), 1e-5, 1e-5));
    EXPECT_FALSE(torch::allclose(quantized->forward(x), model.forward(x), 1e-5, 1e-5));
    EXPECT_TRUE(quantized->named_parameters().find("first") == nullptr);
  }
}

/// A language model in bf16, which makes a tensor of its type in forward.
struct NarrowModel : torch::nn::Module {
  NarrowModel() {
    words = register_module("words", torch::nn::Embedding(20, 32));
    first = register_module("first", torch::nn::Linear(32, 64));
    second = register_module("second", torch::nn::Linear(64, 8));
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = words(ids);
    const at::Tensor half = torch::full({x.size(0), 1, 1}, 0.5, x.options());
    return second(torch::relu(first(x)) * half);
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr};
};

TEST(QuantizeWeights, ModelsOf16BitsRunInTheirType) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    torch::manual_seed(8);
    NarrowModel model;
    model.to(type);
    const at::Tensor ids = torch::randint(20, {4, 6});
    const auto captured = capture(model, {ids});
    for (const WeightOptions& options : {WeightOptions{}, WeightOptions{.bits = 4, .group = 16}}) {
      const auto quantized = quantize_weights(captured, options);
      const at::Tensor got = quantized->forward(ids), want = model.forward(ids);
      EXPECT_EQ(got.scalar_type(), type);
      const double bound = options.bits == 8 ? 0.05 : 0.5;
      EXPECT_LT((got - want).abs().max().item<double>(), bound * want.abs().max().item<double>());
      quantized->to(at::kFloat);  // no tensor is the model's
      EXPECT_TRUE(model.forward(ids).equal(want));
    }
  }
}

TEST(QuantizeWeights, GraphsOf16BitsAreConvertedWhole) {
  const at::NoGradGuard no_grad;
  NarrowModel model;
  model.to(at::kBFloat16);
  const at::Tensor ids = torch::randint(20, {4, 6});
  const auto captured = capture(model, {ids});
  EXPECT_SAYS(ulp::test::error_of([&] { prepare(captured, Recipe::x86_int8()); }),
              "convert the graph with to(torch::kFloat) first");
  captured->to(torch::kFloat);  // the tensors are those of the model
  EXPECT_EQ(captured->forward(ids).scalar_type(), at::kFloat);
  EXPECT_TRUE(captured->forward(ids).equal(model.forward(ids)));
  for (const auto& node : captured->graph().nodes()) {
    for (const auto& output : node->outputs()) {
      if (output->meta) EXPECT_NE(output->meta->dtype, at::kBFloat16) << node->name();
    }
  }
  EXPECT_NO_THROW(prepare(captured, Recipe::x86_int8()));
}

TEST(QuantizeWeights, SkipsAndRefuses) {
  graph::PassReport report;
  quantize_weights(captured_bert(64, 96), {.embeddings = false, .skip_modules = {"bert.encoder"}}, &report);
  EXPECT_EQ(report.changes.size(), 2U);
  EXPECT_EQ(report.near_misses.size(), 12U);
  EXPECT_THROW(quantize_weights(nullptr), Error);
  EXPECT_THROW(quantize_weights(captured_bert(64, 96), {.bits = 5}), Error);
  EXPECT_THROW(quantize_weights(captured_bert(64, 96), {.bits = 4, .group = 7}), Error);
  EXPECT_THROW(quantize_weights(captured_bert(64, 96), {.affine = true}), Error);
  EXPECT_THROW(quantize_weights(captured_bert(64, 96), {.skip_modules = {"nowhere"}}), Error);
  const auto bad = captured_bert(64, 96);
  {
    const at::NoGradGuard no_grad;
    bad->parameters()[0][3][1] = std::numeric_limits<float>::infinity();
  }
  EXPECT_THROW(quantize_weights(bad), Error);
}

}  // namespace
}  // namespace ulp::quant
