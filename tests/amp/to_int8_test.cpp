// Captured models whose linear layers compute in int8.
#include "ulp/amp/int8/to_int8.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/int8/int8_layers.h"
#include "ulp/amp/int8/int8_linear.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"

namespace ulp::amp {
namespace {

using at::Tensor;
using test::error_of;

struct ThreeLayersImpl : torch::nn::Module {
  ThreeLayersImpl() {
    register_module("first", first);
    register_module("middle", middle);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(torch::relu(middle(torch::relu(first(x))))); }
  torch::nn::Linear first{16, 32}, middle{32, 32}, last{32, 4};
};
TORCH_MODULE(ThreeLayers);

TEST(ToInt8, ReplacesTheLayersBetweenTheFirstAndTheLast) {
  torch::manual_seed(1);
  ThreeLayers model;
  const Tensor x = torch::randn({8, 16});
  graph::PassReport report;
  const auto int8 = to_int8(ulp::capture(*model, {x}), Int8Recipe::named("int8:jetfire"), &report);
  EXPECT_EQ(report.changes.size(), 1U);
  EXPECT_EQ(report.near_misses.size(), 2U);
  EXPECT_TRUE(has_int8_layers(*int8));
  EXPECT_FALSE(has_int8_layers(*model));
  const Tensor hidden = torch::relu(model->first(x));
  const Tensor middle =
      int8_linear(hidden, model->middle->weight, model->middle->bias, {.method = Int8Method::jetfire});
  EXPECT_TRUE(at::equal(int8->forward(x), model->last(torch::relu(middle))));
}

TEST(ToInt8, TheRecipeChoosesTheLayers) {
  torch::manual_seed(1);
  ThreeLayers model;
  const auto captured = ulp::capture(*model, {torch::randn({8, 16})});
  graph::PassReport report;
  to_int8(captured, {.first = true, .last = true, .skip_modules = {"mid*"}}, &report);
  EXPECT_EQ(report.changes.size(), 2U);
  EXPECT_NE(error_of([&] { to_int8(captured, {.skip_modules = {"absent"}}); }).find("absent"),
            std::string::npos);
  EXPECT_NE(error_of([&] { to_int8(captured, {.layers = {.output = false}}); }).find("output"),
            std::string::npos);
}

TEST(ToInt8, RecipesHaveNamesAndJson) {
  EXPECT_EQ(Int8Recipe::named("int8").layers.method, Int8Method::rowwise);
  EXPECT_EQ(Int8Recipe::named("int8:switchback").layers.method, Int8Method::switchback);
  EXPECT_THROW(Int8Recipe::named("int4"), Error);
  const Int8Recipe recipe{.layers = {.method = Int8Method::rowwise, .grad_weight = false, .stochastic = true},
                          .last = true,
                          .skip_modules = {"head"}};
  EXPECT_EQ(Int8Recipe::from_json(recipe.to_json()), recipe);
}

TEST(ToInt8, ConvolutionsStayAsTheyAre) {
  torch::nn::Sequential model(torch::nn::Conv2d(3, 8, 3), torch::nn::Conv2d(8, 8, 3), torch::nn::Flatten(),
                              torch::nn::Linear(32, 16), torch::nn::Linear(16, 2));
  graph::PassReport report;
  to_int8(ulp::capture(*model, {torch::randn({2, 3, 6, 6})}), {}, &report);
  ASSERT_EQ(report.changes.size(), 1U);
  EXPECT_NE(report.near_misses[1].find("convolution"), std::string::npos);
}

/// The loss of a text network on one batch after some steps.
double trained(torch::nn::Module& model, const std::function<Tensor(const Tensor&)>& forward,
               const Tensor& tokens, const Tensor& targets) {
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(3e-3));
  double loss = 0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    Tensor logits;
    {
      const Autocast bf16(at::kCPU, at::kBFloat16);
      logits = forward(tokens);
    }
    const Tensor of_batch =
        torch::nn::functional::cross_entropy(logits.to(at::kFloat).flatten(0, -2), targets.flatten());
    of_batch.backward();
    optimizer.step();
    loss = of_batch.item<double>();
  }
  return loss;
}

TEST(ToInt8, Gpt2LearnsAsItDoesInBf16) {
  torch::manual_seed(7);
  const Tensor tokens = torch::randint(0, 200, {4, 32}), targets = tokens.roll(-1, 1);
  std::map<std::string, double> losses;
  for (const std::string name : {"bf16", "int8:switchback", "int8:rowwise", "int8:jetfire"}) {
    torch::manual_seed(3);
    const auto model = models::make_gpt2(models::Gpt2Config::tiny());
    std::shared_ptr<graph::GraphModule> network = ulp::capture(*model, {tokens});
    graph::PassReport report;
    if (name != "bf16") network = to_int8(network, Int8Recipe::named(name), &report);
    network->train();
    losses[name] = trained(
        *network, [&](const Tensor& x) { return network->forward(x); }, tokens, targets);
    // 2 layers of 4 products, but for the first of all; the output layer is tied to the embedding.
    if (name != "bf16") {
      EXPECT_EQ(report.changes.size(), 7U) << name;
    }
  }
  EXPECT_LT(losses["bf16"], 4);
  for (const auto& [name, loss] : losses) EXPECT_NEAR(loss, losses["bf16"], 0.05 * losses["bf16"]) << name;
}

}  // namespace
}  // namespace ulp::amp
