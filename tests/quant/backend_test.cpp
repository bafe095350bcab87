#include "ulp/quant/backend.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;

struct Endings : torch::nn::Module {
  Endings() { fc = register_module("fc", torch::nn::Linear(8, 4)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = fc(x);
    // One after the other: the order of operands, and so of nodes, is the compiler's.
    const at::Tensor last = at::tanh(y) * 0;
    const at::Tensor middle = at::sigmoid(y) * 0;
    return at::softmax(y, -1) + middle + last;
  }
  torch::nn::Linear fc{nullptr};
};

std::shared_ptr<graph::GraphModule> converted(const std::shared_ptr<graph::GraphModule>& captured,
                                              const Recipe& recipe, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  const auto prepared = prepare(captured, recipe);
  prepared->forward(x);
  return convert(prepared);
}

TEST(Backend, ProfilesAreValidAndRoundTrip) {
  for (const std::string& name : recipe_profiles()) {
    const Recipe recipe = Recipe::profile(name);
    recipe.validate();
    EXPECT_EQ(to_string(recipe.backend), name);
    EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe) << recipe.to_json();
    // Not for prepare(): weights_test.cpp and binary_qat_test.cpp.
    if (recipe.backend == Backend::weight_only || recipe.backend == Backend::binary) continue;
    Net net = make_net();
    const auto captured = capture(net, {data(1, 4)});
    const auto quantized = converted(captured, recipe, data(1, 16));
    const at::NoGradGuard no_grad;
    EXPECT_GT(quantization_error(net->forward(data(9, 8)), quantized->forward(data(9, 8))).sqnr_db, 25.0)
        << name;
  }
  EXPECT_ERROR(Recipe::profile("arm_int7"), "tflite_int8");
}

TEST(Backend, TfliteFixesTheResultsOfSoftmaxSigmoidAndTanh) {
  torch::manual_seed(3);
  Endings net;
  const at::Tensor x = torch::randn({6, 8});
  const auto graph = converted(capture(net, {x}), Recipe::tflite_int8(), x);
  int found = 0;
  for (const auto& node : graph->graph().nodes()) {
    if (!node->is("ulp::quantize") || !node->args[0].is_value()) continue;
    const graph::Node& producer = *node->args[0].value->producer;
    const float scale = graph->graph().attribute_tensor(node->arg("scale").value).item<float>();
    const int zero = graph->graph().attribute_tensor(node->arg("zero_point").value).item<int>();
    if (producer.is("aten::softmax") || producer.is("aten::sigmoid")) {
      ++found;
      EXPECT_EQ(scale, 1.0F / 256) << producer.name();
      EXPECT_EQ(zero, -128) << producer.name();
    }
    if (producer.is("aten::tanh")) {
      ++found;
      EXPECT_EQ(scale, 1.0F / 128);
      EXPECT_EQ(zero, 0);
    }
  }
  EXPECT_EQ(found, 3) << graph->graph();
  for (const auto& [name, buffer] : graph->named_buffers().pairs()) {
    const bool codes = name.ends_with(".weight.int8"), zero = name.ends_with(".weight.zero_point");
    const int limit = codes ? 127 : zero ? 0 : 1 << 30;
    EXPECT_LE(buffer.to(at::kInt).abs().max().item<int>(), limit) << name;
  }
}

/// LiteRT's integer mean of codes of [N, C, H, W] over whole windows.
at::Tensor litert_means(const at::Tensor& codes, int64_t height, int64_t width) {
  const int64_t count = height * width;
  const at::Tensor sums =
      (at::avg_pool2d(codes.to(at::kDouble), {height, width}) * count).round().to(at::kLong);
  const at::Tensor up = sums.abs() + count / 2;
  return (sums.sign() * up.div(count, "floor")).to(at::kChar);
}

TEST(Backend, AveragesOfTfliteAreLiteRTs) {
  const at::NoGradGuard no_grad;
  for (const bool whole : {false, true}) {
    torch::manual_seed(5);
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3)));
    if (whole)
      net->push_back(torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions(1)));
    else
      net->push_back(torch::nn::AvgPool2d(2));
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 4, 1)));
    net->eval();
    const at::Tensor x = torch::randn({8, 3, 8, 10});
    for (const char* profile : {"tflite_int8", "x86_int8", "onnx_qdq", "arm_int8"}) {
      const auto module = converted(capture(net, {x}), Recipe::profile(profile), x);
      const auto graph = module->graph().clone();
      const graph::Node* average = nullptr;
      for (const auto& node : graph->nodes())
        if (node->is("ulp::average_codes")) average = node.get();
      ASSERT_NE(average, nullptr) << *graph;
      const bool tflite = std::string(profile) == "tflite_int8";
      EXPECT_EQ(average->arg("rounding").literal.toStringRef(), tflite ? "half_away" : "half_even");
      if (!tflite) continue;
      // Of a whole image, too, the file has a window: MEAN rounds otherwise in each kernel of LiteRT.
      const std::vector<int64_t> window = whole ? std::vector<int64_t>{6, 8} : std::vector<int64_t>{2, 2};
      EXPECT_EQ(average->arg("kernel_size").literal.toIntVector(), window);
      graph->set_output(graph::Argument::tuple({average->args[0].value, average->output()}));
      const auto codes = graph::GraphModule(graph).forward_all({x});
      EXPECT_TRUE(codes[1].equal(litert_means(codes[0], window[0], window[1])));
    }
  }
}

TEST(Backend, WhatATargetCannotRunIsRefusedByTheLayersName) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = Recipe::arm_int8();
  TensorRecipe full = recipe.weight;
  full.scheme.range = Range::full;
  recipe.overrides.push_back(
      {.op = {}, .module = "block2.conv2", .value = {}, .activation = {}, .weight = full});
  EXPECT_ERROR(prepare(captured, recipe),
               "'block2.conv2': arm_int8 takes weights in [-127, 127], got s8 symmetric per channel 0");

  recipe = Recipe::tflite_int8();
  recipe.activation.scheme.is_signed = false;
  EXPECT_ERROR(prepare(captured, recipe), "'input': tflite_int8 takes activations s8 affine, got u8");

  recipe = Recipe::onnx_qdq();
  recipe.weight.scheme.bits = 4;
  EXPECT_ERROR(prepare(captured, recipe), "'stem': onnx_qdq takes weights of 7 or 8 bits");
  recipe.weight.scheme.bits = 7;
  const at::Tensor x = data(1, 4);
  for (const auto& [name, buffer] : converted(captured, recipe, x)->named_buffers().pairs()) {
    if (!name.ends_with(".weight.int8")) continue;
    EXPECT_LE(buffer.to(at::kInt).abs().max().item<int>(), 64) << name;
  }

  Endings endings;
  const auto with_softmax = capture(endings, {torch::randn({2, 8})});
  recipe = Recipe::tflite_int8();
  recipe.overrides.clear();
  EXPECT_ERROR(prepare(with_softmax, recipe),
               "'tanh': tflite_int8 fixes the result of tanh at scale 1/128 and zero point 0");
}

TEST(Backend, TfliteTakesCatsOfOneScaleOnly) {
  struct Branches : torch::nn::Module {
    explicit Branches(bool again) : again(again) {
      const auto conv = [](int64_t in) { return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, 4, 1)); };
      a = register_module("a", conv(3));
      b = register_module("b", conv(again ? 4 : 3));
      c = register_module("c", conv(8));
    }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = a(x);
      return c(at::cat({y, b(again ? y : x)}, 1));
    }
    bool again;
    torch::nn::Conv2d a{nullptr}, b{nullptr}, c{nullptr};
  };
  Branches apart(false), chained(true);
  const at::Tensor x = data(1, 4);
  converted(capture(apart, {x}), Recipe::tflite_int8(), x);
  const auto captured = capture(chained, {x});
  converted(captured, Recipe::x86_int8(), x);
  EXPECT_ERROR(prepare(captured, Recipe::tflite_int8()), "takes operands of one scale, got 'a'");
}

TEST(Backend, OverridesGoByOpThenModuleThenValue) {
  Recipe recipe = Recipe::x86_int8();
  const auto bits = [&](int64_t count) {
    TensorRecipe weight = recipe.weight;
    weight.scheme.bits = count;
    return weight;
  };
  recipe.overrides = {{.op = {}, .module = {}, .value = "conv2d_1", .activation = {}, .weight = bits(3)},
                      {.op = {}, .module = "block1", .value = {}, .activation = {}, .weight = bits(5)},
                      {.op = "conv2d", .module = {}, .value = {}, .activation = {}, .weight = bits(6)},
                      {.op = "conv2d", .module = "*.down", .value = {}, .activation = {}, .weight = bits(4)}};
  recipe.validate();
  const auto of = [&](const char* op, const char* module, const char* value) {
    return recipe.weight_of({op, module, value}).scheme.bits;
  };
  EXPECT_EQ(of("linear", "fc", "linear"), 8);
  EXPECT_EQ(of("conv2d", "stem", "conv2d"), 6);
  EXPECT_EQ(of("conv2d", "block1.conv2", "conv2d_2"), 5);
  EXPECT_EQ(of("conv2d", "block1.conv1", "conv2d_1"), 3);
  EXPECT_EQ(of("conv2d", "block2.down", "conv2d_5"), 4);
  EXPECT_EQ(recipe.activation_of({"conv2d", "stem", "conv2d"}), recipe.activation);
  EXPECT_EQ(Recipe::from_json(recipe.to_json()), recipe);
}

TEST(Backend, OverridesInJsonStartFromTheRecipesOwn) {
  const Recipe recipe = Recipe::from_json(R"({"type": "ulp.quant.Recipe", "version": 3,
    "weight": {"scheme": {"bits": 4}},
    "overrides": [{"module": "fc", "weight": {"scheme": {"bits": 8}}}], "skip_values": ["add_1"]})");
  EXPECT_EQ(recipe.weight_of({"linear", "fc", "linear"}).scheme.to_string(),
            "s8 symmetric restricted per channel 0");
  EXPECT_EQ(recipe.weight_of({"conv2d", "stem", "conv2d"}).scheme.bits, 4);
  EXPECT_FALSE(recipe.overrides[0].activation);
  EXPECT_TRUE(recipe.skips(OpName{"add", "", "add_1"}));
  const auto refused = [](const std::string& fields) {
    return ulp::test::error_of(
        [&] { Recipe::from_json(R"({"type": "ulp.quant.Recipe", "version": 3, )" + fields + "}"); });
  };
  EXPECT_SAYS(refused(R"("overrides": [{"layer": "fc"}])"), "'overrides[0].layer'");
  EXPECT_SAYS(refused(R"("overrides": [{}])"), "overrides[0] to name an op");
  EXPECT_SAYS(refused(R"("overrides": {"module": "fc"})"), "a list of objects");
  EXPECT_SAYS(refused(R"("overrides": [{"op": 3}])"), "a string");
  EXPECT_SAYS(refused(R"("overrides": [{"op": "conv2d", "weight": {"scheme": {"signed": false}}}])"),
              "overrides[0].weight");
  EXPECT_SAYS(refused(R"("backend": "dsp")"), "x86_int8, arm_int8");
}

TEST(Backend, PatternsThatMatchNothingAreRefused) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_values = {"conv2d_99"};
  EXPECT_ERROR(prepare(captured, recipe), "'conv2d_99'");
  recipe = Recipe::x86_int8();
  recipe.overrides.push_back(
      {.op = {}, .module = "blok1", .value = {}, .activation = recipe.activation, .weight = {}});
  EXPECT_ERROR(prepare(captured, recipe), "'blok1'");
}

}  // namespace
}  // namespace ulp::quant
