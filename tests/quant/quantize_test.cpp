#include "ulp/quant/quantize.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <sstream>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::quant {
namespace {

using graph::Graph;
using graph::GraphModule;
using graph::Node;
using graph::Value;
using test::data;
using test::make_net;
using test::Net;
using ulp::test::error_of;

struct Quantized {
  std::shared_ptr<PreparedModule> prepared;
  std::shared_ptr<GraphModule> converted;
  graph::PassReport report;
};

Quantized quantize_net(const std::shared_ptr<GraphModule>& captured,
                       const Recipe& recipe = Recipe::x86_int8()) {
  Quantized result;
  result.prepared = prepare(captured, recipe);
  const at::NoGradGuard no_grad;
  for (uint64_t seed = 1; seed <= 4; ++seed) result.prepared->forward(data(seed, 16));
  result.converted = convert(result.prepared, &result.report);
  result.converted->graph().verify();
  return result;
}

double sqnr_db(const at::Tensor& exact, const at::Tensor& approximate) {
  return 10 * std::log10((exact.square().sum() / (exact - approximate).square().sum()).item<double>());
}

std::vector<const Node*> calls(const Graph& graph, const char* op) {
  std::vector<const Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->is(op)) found.push_back(node.get());
  }
  return found;
}

std::string listing(const Graph& graph) {
  std::ostringstream out;
  out << graph;
  return out.str();
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const auto& line) { return line.find(text) != std::string::npos; });
}

TEST(Prepare, ComputesWhatTheModelComputesAndLeavesItAlone) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const std::string before = listing(captured->graph());
  const auto prepared = prepare(captured, Recipe::x86_int8());
  EXPECT_EQ(listing(captured->graph()), before);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = net->forward(data(9, 6)), got = prepared->forward(data(9, 6));
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-4)) << (got - expected).abs().max();
  // Input; stem's, conv1's, conv2's and down's results. Pools and flatten share; the logits stay float.
  EXPECT_EQ(prepared->graph().modules().size(), 8U) << listing(prepared->graph());
  EXPECT_TRUE(mentions(prepared->report().changes, "block1.conv2 + add + relu quantized"));
  EXPECT_TRUE(mentions(prepared->report().changes, "stem + relu6 quantized"));
}

TEST(Convert, OutputIsCloseToTheFloatModel) {
  Net net = make_net();
  const Quantized q = quantize_net(capture(net, {data(1, 4)}));
  const at::NoGradGuard no_grad;
  const at::Tensor x = data(50, 64);
  const at::Tensor expected = net->forward(x), got = q.converted->forward(x);
  EXPECT_GT(sqnr_db(expected, got), 28.0);
  const at::Tensor last = q.converted->forward(x.to(at::MemoryFormat::ChannelsLast));
  EXPECT_GT(sqnr_db(got, last), 40.0);  // the order of float sums moves a code now and then
}

TEST(Convert, GraphHasTheDocumentedForm) {
  Net net = make_net();
  const Quantized q = quantize_net(capture(net, {data(1, 4)}));
  const Graph& graph = q.converted->graph();
  const auto quantizes = calls(graph, "ulp::quantize");
  // Seven with their own parameters, two that share: max pool, flatten. The average pool works on codes.
  EXPECT_EQ(quantizes.size(), 9U) << listing(graph);
  for (const Node* node : quantizes) {
    const auto readers = graph.users(node->output());
    ASSERT_EQ(readers.size(), 1U) << node->name();
    if (readers[0]->is("ulp::average_codes")) continue;  // it reads codes
    EXPECT_TRUE(readers[0]->is("ulp::dequantize"));
    EXPECT_EQ(readers[0]->arg("scale").value, node->arg("scale").value);
    EXPECT_EQ(readers[0]->arg("zero_point").value, node->arg("zero_point").value);
    EXPECT_EQ(graph.users(node->arg("x").value).size(), 1U)
        << node->name();  // others read the dequantized one
  }
  for (const char* op : {"aten::conv2d", "aten::linear"}) {
    for (const Node* layer : calls(graph, op)) {
      EXPECT_TRUE(layer->args[0].value->producer->is("ulp::dequantize")) << layer->name();
      const Node* weight = layer->arg("weight").value->producer;
      ASSERT_TRUE(weight->is("ulp::dequantize")) << layer->name();
      EXPECT_EQ(graph.attribute_tensor(weight->args[0].value).scalar_type(), at::kChar);
      EXPECT_EQ(layer->scope + ".weight.int8", weight->args[0].value->producer->target());
      const Node* bias = layer->arg("bias").value->producer;
      const Node* input = layer->args[0].value->producer;
      const at::Tensor expected =
          graph.attribute_tensor(input->args[1].value) * graph.attribute_tensor(weight->args[1].value);
      EXPECT_TRUE(graph.attribute_tensor(bias->args[1].value).equal(expected)) << layer->name();
      EXPECT_EQ(graph.attribute_tensor(bias->args[0].value).scalar_type(), at::kInt);
    }
  }
  ASSERT_EQ(calls(graph, "ulp::average_codes").size(), 1U);
  const Node* average = calls(graph, "ulp::average_codes")[0];
  EXPECT_TRUE(average->args[0].value->producer->is("ulp::quantize"));
  EXPECT_EQ(average->arg("scale").value, average->args[0].value->producer->arg("scale").value);
  EXPECT_NE(average->arg("scale").value, average->arg("result_scale").value);
  ASSERT_EQ(graph.users(average->output()).size(), 1U);
  EXPECT_EQ(graph.users(average->output())[0]->arg("scale").value, average->arg("result_scale").value);
  for (const char* op : {"aten::max_pool2d", "aten::flatten"}) {
    ASSERT_EQ(calls(graph, op).size(), 1U) << op;
    const Node* node = calls(graph, op)[0];
    const Node* pair = graph.users(node->output())[0];
    ASSERT_TRUE(pair->is("ulp::quantize")) << op;
    EXPECT_EQ(pair->arg("scale").value, node->args[0].value->producer->arg("scale").value) << op;
  }
  EXPECT_TRUE(graph.modules().empty());
  EXPECT_EQ(graph.output_node()->args[0].value->producer->op(), "aten::linear");
  EXPECT_EQ(graph.find_attribute("stem.weight"), nullptr);
}

TEST(Convert, StateHoldsTheIntegersUnderTheParametersNames) {
  Net net = make_net();
  const Quantized q = quantize_net(capture(net, {data(1, 4)}));
  const auto buffers = q.converted->named_buffers();
  ASSERT_TRUE(buffers.contains("block1.conv1.weight.int8"));
  EXPECT_EQ(buffers["block1.conv1.weight.int8"].sizes(), (at::IntArrayRef{8, 8, 3, 3}));
  EXPECT_EQ(buffers["block1.conv1.weight.scale"].numel(), 8);
  EXPECT_GE(buffers["block1.conv1.weight.int8"].min().item<int>(), -127);
  EXPECT_TRUE(q.converted->parameters().empty());
}

// The static int8 contract: the codes of a convolution's result by plain loops over integers.
TEST(Convert, CodesFollowIntegerArithmetic) {
  torch::manual_seed(11);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(5, 12, 3).stride(2).padding(1)),
                            torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(12, 3, 1)));
  net->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({4, 5, 20, 20}) + 0.3;
  const auto prepared = prepare(capture(net, {x}), Recipe::x86_int8());
  prepared->forward(x);
  const auto converted = convert(prepared);
  const auto twin = converted->graph().clone();
  const auto convs = calls(*twin, "aten::conv2d");
  const Node* input = convs[0]->args[0].value->producer;   // dequantize of x
  const Node* output = convs[1]->args[0].value->producer;  // dequantize of relu
  const auto attribute = [&](const Node* node, const char* name) {
    return twin->attribute_tensor(node->arg(name).value);
  };
  const float in_scale = attribute(input, "scale").item<float>(),
              out_scale = attribute(output, "scale").item<float>();
  const int in_zero = attribute(input, "zero_point").item<int>(),
            out_zero = attribute(output, "zero_point").item<int>();
  const Node *weight = convs[0]->arg("weight").value->producer, *bias = convs[0]->arg("bias").value->producer;
  const at::Tensor w = attribute(weight, "q"), w_scale = attribute(weight, "scale"), b = attribute(bias, "q");
  twin->set_output(graph::Argument::tuple({input->args[0].value, output->args[0].value}));
  const auto codes = GraphModule(twin).forward_all({x});
  const at::Tensor seen = codes[0].contiguous();
  const auto in = seen.accessor<uint8_t, 4>();
  const at::Tensor got = codes[1].contiguous();
  const auto k = w.contiguous();
  const auto kernel = k.accessor<int8_t, 4>();
  at::Tensor expected = at::empty({4, 12, 10, 10}, at::kInt);
  auto out = expected.accessor<int32_t, 4>();
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t o = 0; o < 12; ++o)
      for (int64_t y = 0; y < 10; ++y)
        for (int64_t z = 0; z < 10; ++z) {
          int32_t sum = b[o].item<int>();
          for (int64_t c = 0; c < 5; ++c)
            for (int64_t i = 0; i < 9; ++i) {
              const int64_t row = y * 2 + i / 3 - 1, column = z * 2 + i % 3 - 1;
              if (row < 0 || column < 0 || row >= 20 || column >= 20) continue;  // padding is real zero
              sum += (in[n][c][row][column] - in_zero) * kernel[o][c][i / 3][i % 3];
            }
          const float multiplier = in_scale * w_scale[o].item<float>() / out_scale;
          const float real = std::nearbyint(static_cast<float>(std::max(sum, 0)) * multiplier) +
                             static_cast<float>(out_zero);
          out[n][o][y][z] = static_cast<int32_t>(std::clamp(real, 0.0F, 255.0F));
        }
  const at::Tensor difference = (expected - got.to(at::kInt)).abs();
  EXPECT_LE(difference.max().item<int>(), 1);
  EXPECT_LE(difference.to(at::kFloat).mean().item<float>(), 0.001F);
  EXPECT_GT(got.to(at::kFloat).std().item<float>(), 10.0F);  // the codes are not all the same
}

TEST(Convert, ZeroChannelWithALargeBiasKeepsItsBias) {
  torch::manual_seed(12);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 1)));
  const at::NoGradGuard no_grad;
  net[0]->as<torch::nn::Conv2d>()->weight[2].zero_();
  net[0]->as<torch::nn::Conv2d>()->bias[2] = 1e5;
  net->eval();
  const at::Tensor x = torch::rand({2, 3, 4, 4}) * 0.01;
  const auto prepared = prepare(capture(net, {x}), Recipe::x86_int8());
  prepared->forward(x);
  const at::Tensor y = convert(prepared)->forward(x);
  EXPECT_TRUE(at::allclose(y.select(1, 2), at::full({2, 4, 4}, 1e5F), 1e-6));
}

TEST(Convert, SkippedModulesStayFloatAndTheReportSaysSo) {
  Net net = make_net();
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_modules = {"stem", "block2"};
  const Quantized q = quantize_net(capture(net, {data(1, 4)}), recipe);
  EXPECT_TRUE(mentions(q.report.near_misses, "stem (aten::conv2d) not quantized: the recipe skips it"));
  EXPECT_TRUE(mentions(q.report.near_misses, "block2.conv1"));
  EXPECT_NE(q.converted->graph().find_attribute("stem.weight"), nullptr);
  EXPECT_EQ(q.converted->graph().find_attribute("block2.conv1.weight.int8"), nullptr);
  const at::NoGradGuard no_grad;
  EXPECT_GT(sqnr_db(net->forward(data(50, 8)), q.converted->forward(data(50, 8))), 28.0);
}

TEST(Convert, OneWeightReadByTwoLayers) {
  struct Twice : torch::nn::Module {
    Twice() {
      conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
    }
    at::Tensor forward(const at::Tensor& x) { return conv(at::relu(conv(x))); }
    torch::nn::Conv2d conv{nullptr};
  } net;
  net.eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 4, 8, 8}) * 3;
  const auto prepared = prepare(capture(net, {x}), Recipe::x86_int8());
  prepared->forward(x);
  const auto converted = convert(prepared);
  EXPECT_NE(converted->graph().find_attribute("conv.bias_2.int32"), nullptr);
  EXPECT_EQ(converted->graph().find_attribute("conv.weight_2.int8"), nullptr);
  EXPECT_GT(sqnr_db(net.forward(x), converted->forward(x)), 30.0);
}

TEST(Errors, NoDataAndNaNNameTheLayer) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const auto fresh = prepare(captured, Recipe::x86_int8());
  EXPECT_NE(error_of([&] {
              convert(fresh);
            }).find("expected every observer to have seen data, got none for 'input'"),
            std::string::npos)
      << error_of([&] { convert(fresh); });
  const auto spoiled = prepare(captured, Recipe::x86_int8());
  at::Tensor x = data(2, 4);
  x[0][0][0][0] = NAN;
  spoiled->forward(x);
  EXPECT_NE(error_of([&] { convert(spoiled); }).find("1 NaN values at 'input'"), std::string::npos);
  const auto infinite = prepare(captured, Recipe::x86_int8());
  infinite->forward(torch::full_like(x, INFINITY));
  EXPECT_NE(error_of([&] { convert(infinite); }).find("got only 0 NaN and"), std::string::npos)
      << error_of([&] { convert(infinite); });
}

TEST(Errors, NaNThatALayerMakesNamesTheLayer) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  {
    const at::NoGradGuard no_grad;
    net->block1->conv2->weight[0][0][0][0] = INFINITY;  // inf - inf in the next layer
  }
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::histogram, ObserverKind::percentile,
                                  ObserverKind::entropy, ObserverKind::mse}) {
    Recipe recipe = Recipe::x86_int8();
    recipe.activation.observer = kind;
    const auto prepared = prepare(captured, recipe);
    prepared->forward(data(2, 4));
    const std::string message = error_of([&] { convert(prepared); });
    EXPECT_NE(message.find("NaN values at 'block"), std::string::npos) << message;
  }
}

TEST(Errors, CalibrationDataOfAnotherShape) {
  Net net = make_net();
  const auto prepared = prepare(capture(net, {data(1, 4)}), Recipe::x86_int8());
  const std::string channels = error_of([&] { prepared->forward(torch::randn({2, 4, 16, 16})); });
  EXPECT_NE(channels.find("in dimension 1 of"), std::string::npos) << channels;
  const std::string dimensions = error_of([&] { prepared->forward(torch::randn({3, 16, 16})); });
  EXPECT_NE(dimensions.find("with 4 dimensions"), std::string::npos) << dimensions;
}

TEST(Convert, EveryObserverCalibratesTheNetwork) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const at::NoGradGuard no_grad;
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::moving_average,
                                  ObserverKind::percentile, ObserverKind::entropy, ObserverKind::mse}) {
    Recipe recipe = Recipe::x86_int8();
    recipe.activation.observer = kind;
    recipe.weight.observer = kind == ObserverKind::mse ? kind : ObserverKind::min_max;
    const Quantized q = quantize_net(captured, recipe);
    EXPECT_GT(sqnr_db(net->forward(data(50, 8)), q.converted->forward(data(50, 8))), 25.0) << kind;
  }
}

TEST(Errors, RecipesThatDoNotFit) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = Recipe::x86_int8();
  recipe.skip_modules = {"blok1"};
  EXPECT_NE(error_of([&] { prepare(captured, recipe); }).find("'blok1'"), std::string::npos);
  recipe.skip_modules = {"*"};
  EXPECT_NE(error_of([&] { prepare(captured, recipe); }).find("at least one op"), std::string::npos);
  recipe = Recipe::x86_int8();
  recipe.activation.scheme.bits = 16;
  EXPECT_NE(error_of([&] { prepare(captured, recipe); }).find("activation"), std::string::npos);
  net->fc->weight.data()[0][0] = NAN;
  const auto prepared = prepare(captured, Recipe::x86_int8());
  prepared->forward(data(1, 4));
  EXPECT_NE(error_of([&] { convert(prepared); }).find("'fc.weight'"), std::string::npos);
}

}  // namespace
}  // namespace ulp::quant
