// Overrides and backends of recipes through quantization-aware training: still the integers of the converted
// graph.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "residual_net.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;

/// One step of training, then eval mode; the results of the module and of what it converts to.
std::pair<at::Tensor, at::Tensor> after_a_step(const std::shared_ptr<graph::GraphModule>& captured,
                                               const Recipe& recipe, const at::Tensor& x,
                                               std::shared_ptr<graph::GraphModule>* converted = nullptr) {
  const auto qat = prepare_qat(captured, recipe);
  torch::optim::SGD optimizer(qat->parameters(), 1e-3);
  qat->forward(x).square().mean().backward();
  optimizer.step();
  qat->eval();
  const at::NoGradGuard no_grad;
  const auto graph = convert_qat(qat);
  if (converted) *converted = graph;
  return {qat->forward(x), graph->forward(x)};
}

TEST(QatRecipe, OverridesAreThoseOfTheConvertedGraph) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = Recipe::x86_int8();
  TensorRecipe weight = recipe.weight, activation = recipe.activation;
  weight.scheme.bits = 3;
  activation.scheme.bits = 5;
  recipe.overrides = {
      {.op = {}, .module = "block1.conv1", .value = {}, .activation = activation, .weight = weight},
      {.op = "linear", .module = {}, .value = {}, .activation = {}, .weight = weight}};
  std::shared_ptr<graph::GraphModule> converted;
  const auto [trained, got] = after_a_step(captured, recipe, data(2, 8), &converted);
  EXPECT_TRUE(trained.equal(got)) << (trained - got).abs().max();
  const auto buffers = converted->named_buffers();
  const auto largest = [&](const std::string& name) {
    return buffers[name + ".weight.int8"].abs().max().item<int>();
  };
  EXPECT_EQ(largest("block1.conv1"), 3);
  EXPECT_EQ(largest("fc"), 3);
  EXPECT_EQ(largest("block1.conv2"), 127);
  int coarse = 0;
  for (const auto& node : converted->graph().nodes()) {
    if (node->is("ulp::quantize")) coarse += node->arg("qmax").literal.toInt() == 31;
  }
  EXPECT_EQ(coarse, 1);
}

TEST(QatRecipe, SkippedValuesStayFloat) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = Recipe::x86_int8();
  std::string first;
  for (const auto& node : captured->graph().nodes()) {
    if (first.empty() && node->is("aten::conv2d")) first = node->name();
  }
  recipe.skip_values = {first};
  std::shared_ptr<graph::GraphModule> converted;
  const auto [trained, got] = after_a_step(captured, recipe, data(2, 8), &converted);
  EXPECT_TRUE(trained.equal(got));
  EXPECT_NE(converted->graph().find_attribute("stem.weight"), nullptr);
  EXPECT_EQ(converted->graph().find_attribute("stem.weight.int8"), nullptr);
}

TEST(QatRecipe, FixedResultsOfTflite) {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 4),
                            torch::nn::Softmax(-1));
  const at::Tensor x = torch::randn({6, 8});
  const auto [trained, got] = after_a_step(capture(net, {x}), Recipe::tflite_int8(), x);
  EXPECT_TRUE(trained.equal(got)) << (trained - got).abs().max();
  EXPECT_TRUE((got * 256).equal((got * 256).round()));
}

}  // namespace
}  // namespace ulp::quant
