// fp8 on captured models: which layers, with which state, and how they train.
#include "ulp/amp/fp8/to_fp8.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "error_of.h"
#include "fp8_support.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_layers_of.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/graph/capture/capture.h"

namespace {

using namespace ulp::amp;
using ulp::graph::GraphModule;
using ulp::graph::PassReport;
using ulp::test::error_of;

/// A convolution, one in groups, two linear layers, and a product with a stored matrix between them.
struct SmallFp8NetImpl : torch::nn::Module {
  SmallFp8NetImpl() {
    stem = register_module("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    grouped = register_module("grouped", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).groups(2)));
    mix = register_parameter("mix", torch::randn({8, 8}) / 4);
    inner = register_module("inner", torch::nn::Linear(8, 16));
    head = register_module("head", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(grouped(torch::relu(stem(x)))).mean({2, 3});
    return head(torch::relu(inner(torch::matmul(x, mix))));
  }
  torch::nn::Conv2d stem{nullptr}, grouped{nullptr};
  torch::nn::Linear inner{nullptr}, head{nullptr};
  at::Tensor mix;
};
TORCH_MODULE(SmallFp8Net);

std::shared_ptr<GraphModule> small_fp8_graph() {
  torch::manual_seed(1);
  SmallFp8Net net;
  return ulp::capture(*net, {torch::randn({2, 3, 6, 6})});
}

std::string calls_of(const GraphModule& module) {
  std::string ops;
  for (const auto& node : module.graph().nodes()) {
    if (node->target().find("fp8") != std::string::npos)
      ops += std::string(node->op()) + ' ' + node->scope + '\n';
  }
  return ops;
}

TEST(ToFp8, TakesEveryLayerButTheFirstAndTheLast) {
  PassReport report;
  const auto captured = small_fp8_graph();
  const auto fp8 = to_fp8(captured, Fp8Recipe::named("fp8:delayed"), &report);
  EXPECT_EQ(report.pass, "to_fp8");
  EXPECT_EQ(report.changes.size(), 3U);
  EXPECT_EQ(
      report.near_misses,
      (std::vector<std::string>{"stem stays as it is: it is the first layer (the recipe says first: false)",
                                "head stays as it is: it is the last layer (the recipe says last: false)"}));
  EXPECT_EQ(fp8_layers_of(*fp8).size(), 3U);
  EXPECT_TRUE(has_fp8_layers(*fp8));
  EXPECT_FALSE(has_fp8_layers(*captured));
  EXPECT_NE(calls_of(*fp8).find("ulp::fp8_convolution grouped"), std::string::npos) << calls_of(*fp8);
}

TEST(ToFp8, FirstLastSkipsAndOverridesChoose) {
  Fp8Recipe recipe = Fp8Recipe::named("mxfp8");
  recipe.first = recipe.last = true;
  recipe.skip_modules = {"inn*"};
  recipe.overrides = {{.module = "head", .layers = ulp::test::with(Fp8Scaling::current)}};
  PassReport report;
  const auto fp8 = to_fp8(small_fp8_graph(), recipe, &report);
  EXPECT_EQ(report.near_misses,
            (std::vector<std::string>{
                "grouped stays as it is: a convolution in 2 groups has no form with scales of mxfp8",
                "inner stays as it is: skipped by name"}));
  for (const Fp8LayerOf& layer : fp8_layers_of(*fp8)) {
    EXPECT_EQ(layer.recipe.scaling, layer.name == "head" ? Fp8Scaling::current : Fp8Scaling::mxfp8)
        << layer.name;
    EXPECT_FALSE(layer.state.defined());
  }
}

TEST(ToFp8, WhatCannotBeDoneIsAnError) {
  Fp8Recipe recipe;
  EXPECT_EQ(error_of([&] { to_fp8(nullptr, recipe); }), "[amp.to_fp8] expected a captured model, got null");
  recipe.skip_modules = {"nothing"};
  EXPECT_EQ(error_of([&] { to_fp8(small_fp8_graph(), recipe); }),
            "[amp.to_fp8] expected skip_modules to name modules of the model, got 'nothing'");
  Fp8Recipe other;
  other.overrides = {{.module = "nothing"}};
  EXPECT_SAYS(error_of([&] { to_fp8(small_fp8_graph(), other); }),
              "[amp.to_fp8] expected overrides to name modules of the model, got 'nothing'");
  recipe.skip_modules = {"*"};
  EXPECT_SAYS(error_of([&] { to_fp8(small_fp8_graph(), recipe); }),
              "expected at least one layer to replace, got none");
}

TEST(ToFp8, ParametersAreTheCapturedModelsAndStateIsBuffers) {
  const auto captured = small_fp8_graph();
  const auto fp8 = to_fp8(captured, Fp8Recipe::named("fp8:delayed"));
  for (const auto& item : captured->named_parameters())
    EXPECT_TRUE(fp8->named_parameters()[item.key()].is_same(item.value())) << item.key();
  const auto buffers = fp8->named_buffers();
  EXPECT_EQ(buffers["grouped.fp8_scale"].sizes(), (std::vector<int64_t>{3}));
  EXPECT_EQ(buffers["inner.fp8_amax_history"].sizes(), (std::vector<int64_t>{3, 1024}));
  apply_precision(*fp8, find_precision("O3:bf16"));
  EXPECT_EQ(fp8->named_buffers()["grouped.fp8_scale"].scalar_type(), torch::kFloat);
  EXPECT_EQ(fp8->named_parameters()["inner.weight"].scalar_type(), torch::kBFloat16);
}

TEST(ToFp8, TrainsWithEveryPrecision) {
  for (const Precision& precision : precisions()) {
    if (!precision.fp8) continue;
    Fp8Recipe recipe = Fp8Recipe::named(precision.name);
    const auto fp8 = to_fp8(small_fp8_graph(), recipe);
    fp8->train();
    torch::optim::SGD optimizer(fp8->parameters(), 0.5);
    const at::Tensor x = torch::randn({16, 3, 6, 6}), y = torch::randint(0, 4, {16});
    double first = 0, last = 0;
    for (int step = 0; step < 80; ++step) {
      optimizer.zero_grad();
      at::Tensor output;
      {
        const auto guard = autocast_for(precision, torch::kCPU);
        output = fp8->forward(x);
      }
      const at::Tensor loss = torch::cross_entropy_loss(output.to(torch::kFloat), y);
      loss.backward();
      optimizer.step();
      update_fp8(*fp8);
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.95 * first) << precision.name;
  }
}

TEST(ToFp8, AGuardMakesItThePlainModel) {
  const auto captured = small_fp8_graph();
  const auto fp8 = to_fp8(captured, Fp8Recipe::named("fp8:current"));
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  const at::Tensor plain = captured->forward(x);
  EXPECT_FALSE(torch::equal(fp8->forward(x), plain));
  {
    const Fp8Autocast off(false);
    EXPECT_TRUE(torch::allclose(fp8->forward(x), plain, 1e-5, 1e-6));
    const Fp8Autocast on(true);
    EXPECT_FALSE(torch::allclose(fp8->forward(x), plain, 1e-5, 1e-6));
  }
  EXPECT_FALSE(torch::equal(fp8->forward(x), plain));
}

TEST(ToFp8, AmaxesAreReducedTogetherBeforeScalesAreMade) {
  const auto fp8 = to_fp8(small_fp8_graph(), Fp8Recipe::named("fp8:delayed"));
  fp8->train();
  fp8->forward(torch::randn({4, 3, 6, 6})).sum().backward();
  int calls = 0;
  update_fp8(*fp8, [&](at::Tensor& amaxes) {
    ++calls;
    EXPECT_EQ(amaxes.sizes(), (std::vector<int64_t>{9}));
    EXPECT_TRUE((amaxes > 0).all().item<bool>());
    amaxes.fill_(14);
  });
  EXPECT_EQ(calls, 1);
  for (const Fp8LayerOf& layer : fp8_layers_of(*fp8)) {
    EXPECT_EQ(layer.state.scale_of(Fp8Role::input).item<float>(), 32.0F);
    EXPECT_EQ(layer.state.scale_of(Fp8Role::gradient).item<float>(), 4096.0F);
  }
}

/// The same layer twice in one forward.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() { inner = register_module("inner", torch::nn::Linear(4, 4)); }
  at::Tensor forward(at::Tensor x) { return inner(torch::relu(inner(x))); }
  torch::nn::Linear inner{nullptr};
};
TORCH_MODULE(Twice);

TEST(ToFp8, ALayerThatIsCalledTwiceHasOneState) {
  Twice net;
  Fp8Recipe recipe;
  recipe.first = recipe.last = true;
  const auto fp8 = to_fp8(ulp::capture(*net, {torch::randn({2, 4})}), recipe);
  EXPECT_EQ(fp8->named_buffers().size(), 2U);
  EXPECT_EQ(fp8_layers_of(*fp8).size(), 1U);
}

}  // namespace
