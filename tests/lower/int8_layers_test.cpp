// Small quantized graphs, one for each way in which 8-bit and float steps meet.
#include <gtest/gtest.h>

#include "int8_support.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

torch::nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t groups = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).groups(groups));
}

struct Small {
  std::shared_ptr<graph::GraphModule> floating, quantized;
};

Small quantize(const std::shared_ptr<Net>& net, const at::Tensor& example,
               const quant::Recipe& recipe = quant::Recipe::x86_int8()) {
  const torch::NoGradGuard no_grad;
  auto module = captured(net, example);
  auto prepared = quant::prepare(module, recipe);
  prepared->forward(torch::randn_like(example));
  return {module, quant::convert(prepared)};
}

/// "convert:u8 conv:u8 linear:f32"
std::string typed_ops(const runtime::Plan& plan) {
  std::string text;
  for (const runtime::Step& step : plan.steps) {
    if (!text.empty()) text += ' ';
    text += to_string(step.op);
    text += ':';
    text += to_string(plan.tensors[static_cast<size_t>(step.output)].type);
  }
  return text;
}

/// The engine differs from the graph by a small part of what quantization changed.
void expect_as_graph(const Small& small, const at::Tensor& input, const std::string& ops,
                     const LowerOptions& options = {}, double share = 0.1) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*small.quantized, options);
  EXPECT_EQ(typed_ops(plan), ops) << listing(plan);
  runtime::Engine engine(plan);
  const at::Tensor expected = small.quantized->forward(input);
  const double error = (run_engine(engine, input) - expected).norm().item<double>();
  const double quantization = (expected - small.floating->forward(input)).norm().item<double>();
  EXPECT_GT(quantization, 0);
  EXPECT_LE(error, share * quantization);
}

TEST(Int8Layers, SoftmaxWithTheFixedResultOfTflite) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", torch::nn::Linear(8, 4));
  net->body = [=](const at::Tensor& x) mutable { return torch::softmax(fc->forward(x), -1); };
  const at::Tensor x = torch::randn({16, 8});
  const Small small = quantize(net, x, quant::Recipe::tflite_int8());
  runtime::Engine engine(lower(*small.quantized));
  const torch::NoGradGuard no_grad;
  const at::Tensor got = run_engine(engine, x), expected = small.quantized->forward(x);
  EXPECT_TRUE((got * 256).equal((got * 256).round()));
  EXPECT_LE((got - expected).abs().max().item<float>(), 1.0F / 256);
}

TEST(Int8Layers, SumThatFusesWithNoLayer) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(3, 8));
  auto c = net->add("c", conv3x3(8, 4));
  net->body = [=](const at::Tensor& x) mutable {
    return c->forward(torch::relu(torch::relu(a->forward(x)) + torch::relu(b->forward(x))));
  };
  expect_as_graph(quantize(net, torch::randn({4, 3, 9, 9})), torch::randn({3, 3, 9, 9}),
                  "convert:u8 conv:u8 conv:u8 add:u8 conv:f32 convert:f32");
}

/// Codes in, codes of another scale out, for TensorFlow Lite of the same, where the mean of four codes lies half
/// way between two codes for one element in four: graph and engine decide by one rule.
TEST(Int8Layers, MeansHaveCodesOfTheirOwnScale) {
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(8, 16));
  auto fc = net->add("fc", torch::nn::Linear(16, 5));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::avg_pool2d(torch::relu(a->forward(x)), 2);
    return fc->forward(torch::relu(b->forward(y)).mean({2, 3}));
  };
  const at::Tensor example = torch::randn({4, 3, 8, 8}), x = torch::randn({3, 3, 8, 8});
  for (const bool tflite : {false, true}) {
    const Small small =
        quantize(net, example, tflite ? quant::Recipe::tflite_int8() : quant::Recipe::x86_int8());
    const std::string steps = "convert:u8 conv:u8 avg_pool:u8 conv:u8 ";
    const std::string rest =
        tflite ? "avg_pool:u8 flatten:u8 linear:u8 convert:f32" : "global_avg_pool:u8 flatten:u8 linear:f32";
    expect_as_graph(small, x, steps + rest, {}, 1.0);
    const runtime::Plan plan = lower(*small.quantized);
    expect_steps_as_graph(*small.quantized, plan, x);
    for (const size_t mean : {2U, 4U}) {
      const runtime::Step& step = plan.steps[mean];
      const bool away = step.op == runtime::Op::avg_pool &&
                        step.get<runtime::PoolAttributes>().rounding == runtime::MeanRounding::half_away;
      EXPECT_EQ(away, tflite);
      const float in = info(plan, step.inputs[0]).scale, out = info(plan, step.output).scale;
      EXPECT_GE(in, tflite ? out : 1.1F * out);
      EXPECT_EQ(in == out, tflite);
    }
  }
}

/// Windows of every kind over codes; no code of a mean differs from the graph's (expect_steps_as_graph).
TEST(Int8Layers, MeansOfCodesAreTheGraphsInEveryWindow) {
  const torch::NoGradGuard no_grad;
  const std::vector<std::pair<const char*, Body>> means = {
      {"2x2", [](const at::Tensor& x) { return torch::avg_pool2d(x, 2); }},
      {"3x3, padded", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1); }},
      {"3x3, what is inside", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1, true, false); }},
      {"1x4 of 5x3",
       [](const at::Tensor& x) {
         return torch::avg_pool2d(x, {1, 4}, {5, 3}, {0, 2});
       }},
      {"rounded up", [](const at::Tensor& x) { return torch::avg_pool2d(x, 4, 4, 0, true); }},
      {"all",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {1, 1});
       }},
      {"adaptive",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {5, 2});
       }},
      {"mean", [](const at::Tensor& x) {
         return x.mean({2, 3}, true);
       }}};
  for (const auto& [name, mean] : means) {
    for (const bool tflite : {false, true}) {
      SCOPED_TRACE(name);
      torch::manual_seed(7);
      auto net = std::make_shared<Net>();
      auto a = net->add("a", conv3x3(3, 19));
      auto b = net->add("b", conv3x3(19, 3));
      net->body = [=, &mean = mean](const at::Tensor& x) mutable { return b->forward(mean(a->forward(x))); };
      const Small small = quantize(net, torch::randn({4, 3, 10, 14}),
                                   tflite ? quant::Recipe::tflite_int8() : quant::Recipe::x86_int8());
      const runtime::Plan plan = lower(*small.quantized);
      const auto on_codes = [&](const runtime::Step& step) {
        const bool average = step.op == runtime::Op::avg_pool || step.op == runtime::Op::global_avg_pool;
        return average && info(plan, step.inputs[0]).type == runtime::DataType::u8;
      };
      EXPECT_EQ(std::ranges::count_if(plan.steps, on_codes), 1) << listing(plan);
      for (const int64_t batch : {1, 3, 8})
        expect_steps_as_graph(*small.quantized, plan, torch::randn({batch, 3, 10, 14}));
    }
  }
}

TEST(Int8Layers, MeansOfSequencesOfCodesAreTheGraphs) {
  const torch::NoGradGuard no_grad;
  for (const bool all : {false, true}) {
    torch::manual_seed(8);
    auto net = std::make_shared<Net>();
    auto a = net->add("a", torch::nn::Conv1d(torch::nn::Conv1dOptions(3, 8, 3)));
    auto b = net->add("b", torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 4, 1)));
    net->body = [=](const at::Tensor& x) mutable {
      const at::Tensor y = a->forward(x);
      return b->forward(all ? torch::adaptive_avg_pool1d(y, 1) : torch::avg_pool1d(y, 4, 2, 1));
    };
    const Small small = quantize(net, torch::randn({4, 3, 22}));
    const runtime::Plan plan = lower(*small.quantized);
    runtime::Engine engine(plan);
    const at::Tensor x = torch::randn({5, 3, 22});
    // From the same codes; the last layer's sums are in f32 on both sides.
    EXPECT_LE(relative_error(run_engine(engine, x), small.quantized->forward(x)), 1e-5) << listing(plan);
  }
}

TEST(Int8Layers, FlattenOfImagesAndRelu6) {
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(4, 4, 4));
  auto fc = net->add("fc", torch::nn::Linear(4 * 20, 6));
  net->body = [=](const at::Tensor& x) mutable {
    return fc->forward(torch::flatten(torch::hardtanh(a->forward(x), 0, 6), 1));
  };
  expect_as_graph(quantize(net, torch::randn({4, 4, 5, 4}) * 4), torch::randn({3, 4, 5, 4}) * 4,
                  "convert:u8 conv:u8 flatten:u8 linear:f32");
}

TEST(Int8Layers, ResultOfAPoolingLeavesAsFloat) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(8, 8));
  net->body = [=](const at::Tensor& x) mutable {
    return torch::max_pool2d(b->forward(torch::relu(a->forward(x))), 2);
  };
  expect_as_graph(quantize(net, torch::randn({4, 3, 8, 8})), torch::randn({3, 3, 8, 8}),
                  "convert:u8 conv:u8 conv:f32 max_pool:f32 convert:f32");
}

TEST(Int8Layers, ALayerLeftInFloat) {
  torch::manual_seed(5);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(8, 8));
  auto c = net->add("c", conv3x3(8, 4));
  net->body = [=](const at::Tensor& x) mutable {
    return c->forward(torch::relu(b->forward(torch::relu(a->forward(x)))));
  };
  quant::Recipe recipe = quant::Recipe::x86_int8();
  recipe.skip_modules = {"b"};
  const Small small = quantize(net, torch::randn({4, 3, 8, 8}), recipe);
  const at::Tensor x = torch::randn({3, 3, 8, 8});
  expect_as_graph(small, x, "convert:u8 conv:f32 conv:f32 convert:u8 conv:f32 convert:f32");
  // What is float runs in bf16 where that is asked for; its errors are of the size of 8 bits.
  expect_as_graph(small, x, "convert:u8 conv:f32 convert:bf16 conv:f32 convert:u8 conv:f32 convert:f32",
                  {.precision = LowerOptions::Precision::bf16}, 1.0);
}

/// Two operands take the cat's parameters and are copied; the third is read by a layer too and requantized.
TEST(Int8Layers, CatsCopyOrRequantizeCodes) {
  torch::manual_seed(6);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(8, 6));
  auto c = net->add("c", conv3x3(3, 4));
  auto d = net->add("d", conv3x3(18, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor shared = torch::relu(a->forward(x));
    return d->forward(torch::cat({torch::cat({b->forward(shared), c->forward(x)}, 1), shared}, 1));
  };
  const Small small = quantize(net, torch::randn({4, 3, 9, 9}));
  expect_as_graph(small, torch::randn({3, 3, 9, 9}),
                  "convert:u8 conv:u8 conv:u8 conv:u8 concat:u8 concat:u8 conv:f32 convert:f32");
  const runtime::Plan plan = lower(*small.quantized);
  const auto scale = [&](int32_t tensor) { return plan.tensors[static_cast<size_t>(tensor)].scale; };
  const runtime::Step &inner = plan.steps[4], &outer = plan.steps[5];
  EXPECT_EQ(scale(inner.inputs[0]), scale(outer.output));
  EXPECT_EQ(scale(inner.inputs[1]), scale(outer.output));
  EXPECT_EQ(scale(inner.output), scale(outer.output));
  EXPECT_NE(scale(outer.inputs[1]), scale(outer.output));
}

TEST(Int8Layers, ShufflesAndPartsOfChannels) {
  torch::manual_seed(7);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(4, 4));
  auto c = net->add("c", conv3x3(8, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const auto parts = torch::channel_shuffle(torch::relu(a->forward(x)), 2).chunk(2, 1);
    return c->forward(torch::cat({parts[0], b->forward(parts[1])}, 1));
  };
  expect_as_graph(
      quantize(net, torch::randn({4, 3, 9, 9})), torch::randn({3, 3, 9, 9}),
      "convert:u8 conv:u8 channel_shuffle:u8 slice:u8 slice:u8 conv:u8 concat:u8 conv:f32 convert:f32");
}

/// A cat that ends the network gives real numbers.
TEST(Int8Layers, ResultOfACatLeavesAsFloat) {
  torch::manual_seed(8);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv3x3(3, 8));
  auto b = net->add("b", conv3x3(8, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::relu(a->forward(x));
    return torch::cat({y, b->forward(y)}, 1);
  };
  expect_as_graph(quantize(net, torch::randn({4, 3, 8, 8})), torch::randn({3, 3, 8, 8}),
                  "convert:u8 conv:u8 conv:f32 convert:f32 concat:f32 convert:f32");
}

TEST(Int8Layers, NamesOfConstantsAreTheParameters) {
  auto net = std::make_shared<Net>();
  auto fc1 = net->add("fc1", torch::nn::Linear(6, 5));
  auto fc2 = net->add("fc2", torch::nn::Linear(5, 4));
  net->body = [=](const at::Tensor& x) mutable { return fc2->forward(torch::relu(fc1->forward(x))); };
  const runtime::Plan plan = lower(*quantize(net, torch::randn({4, 6})).quantized);
  EXPECT_EQ(plan.constants.at("fc1.weight").type, runtime::DataType::i8);
  EXPECT_EQ(plan.constants.at("fc1.weight.scale").shape, std::vector<int64_t>{5});
  EXPECT_EQ(plan.constants.at("fc1.bias").type, runtime::DataType::i32);
  EXPECT_EQ(plan.constants.size(), 6U);
}

TEST(Int8Layers, ANetworkWithObserversIsRefused) {
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", torch::nn::Linear(6, 5));
  net->body = [=](const at::Tensor& x) mutable { return fc->forward(x); };
  auto prepared = quant::prepare(captured(net, torch::randn({4, 6})), quant::Recipe::x86_int8());
  try {
    lower(*prepared);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quant::convert"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ulp::test
