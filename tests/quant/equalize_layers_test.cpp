// Cross-layer equalization: the float network stays, ranges on both sides of a channel become one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/registry.h"
#include "ulp/quant/methods/scale_channels.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::quant {
namespace {

using at::Tensor;

struct EqualNetOptions {
  bool relu6 = false;
  int64_t groups = 1;  ///< of the last convolution
};

/// conv - relu - depthwise conv - max pool - conv (grouped) - pool - flatten - linear - relu - linear, with
/// channels of very different size.
struct EqualNet : torch::nn::Module {
  explicit EqualNet(const EqualNetOptions& how) : relu6(how.relu6) {
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    depth =
        register_module("depth", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1).groups(8)));
    mix = register_module("mix", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 12, 1).groups(how.groups)));
    wide = register_module("wide", torch::nn::Linear(12 * 4, 10));
    last = register_module("last", torch::nn::Linear(10, 5));
    const at::NoGradGuard no_grad;
    first->weight.mul_(at::logspace(-1, 1, 8).view({8, 1, 1, 1}));
    first->bias.uniform_(-0.3, 0.3);
    depth->weight.mul_(at::logspace(1, -0.5, 8).view({8, 1, 1, 1}));
    mix->weight.mul_(at::logspace(0.7, -0.7, 12).view({12, 1, 1, 1}));
    wide->weight.mul_(at::logspace(-0.5, 0.5, 10).view({10, 1}));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = first(x);
    y = torch::relu(depth(relu6 ? torch::relu6(y) : torch::relu(y)));
    y = torch::adaptive_avg_pool2d(mix(torch::max_pool2d(y, 2)), {2, 2});
    return last(torch::relu(wide(y.flatten(1))));
  }
  bool relu6;
  torch::nn::Conv2d first{nullptr}, depth{nullptr}, mix{nullptr};
  torch::nn::Linear wide{nullptr}, last{nullptr};
};

/// The weight of a layer as [groups, rows, columns, taps].
Tensor blocks_of_layer(const graph::GraphModule& model, const std::string& scope, int64_t groups = 1) {
  for (const auto& node : model.graph().nodes()) {
    if (node->scope != scope || !(node->is("aten::conv2d") || node->is("aten::linear"))) continue;
    const Tensor w = model.graph().attribute_tensor(node->arg("weight").value);
    return w.reshape({groups, w.size(0) / groups, w.size(1), -1});
  }
  return {};
}
Tensor row_sizes(const Tensor& blocks) {
  return at::amax(blocks.abs(), {2, 3}).flatten();
}
Tensor column_sizes(const Tensor& blocks) {
  return at::amax(blocks.abs(), {1, 3}).flatten();
}

double relative(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

/// Each channel sums fewer than 100 products; five layers.
constexpr double kFloatBound = 5 * 100 * 0x1p-24;

TEST(EqualizeLayers, TheNetworkStaysAndRangesMeet) {
  const at::NoGradGuard no_grad;
  for (const int64_t groups : {1, 2, 4}) {
    torch::manual_seed(3);
    EqualNet model({.groups = groups});
    const Tensor x = torch::randn({4, 3, 8, 8});
    const auto captured = capture(model, {x});
    const Tensor exact = captured->forward(x);
    graph::PassReport report;
    const auto equal = equalize_layers(captured, false, &report);
    equal->graph().verify();
    EXPECT_LT(relative(equal->forward(x), exact), kFloatBound);
    EXPECT_TRUE(captured->forward(x).equal(exact)) << "the model's own tensors stay";
    ASSERT_EQ(report.changes.size(), 4U) << testing::PrintToString(report.near_misses);
    EXPECT_EQ(report.changes[0], "first: channels equalized with depth");
    EXPECT_EQ(report.changes[3], "wide: channels equalized with last");
    EXPECT_SAYS(report.near_misses.back(),
                "last: channels not equalized with those behind: its result is the model's");
    const auto expect_meet = [&](const Tensor& rows, const Tensor& columns) {
      EXPECT_LT(((rows - columns) / columns).abs().max().item<double>(), 1e-3);
    };
    const Tensor mix = blocks_of_layer(*equal, "mix", groups), wide = blocks_of_layer(*equal, "wide");
    expect_meet(row_sizes(blocks_of_layer(*equal, "first")),
                column_sizes(blocks_of_layer(*equal, "depth", 8)));
    expect_meet(row_sizes(blocks_of_layer(*equal, "depth", 8)), column_sizes(mix));
    expect_meet(row_sizes(mix), at::amax(column_sizes(wide).view({12, 4}), 1));
    expect_meet(row_sizes(wide), column_sizes(blocks_of_layer(*equal, "last")));
  }
}

TEST(EqualizeLayers, OnePairHasTheScaleOfTheDefinition) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(4);
  torch::nn::Sequential model(torch::nn::Linear(6, 5), torch::nn::ReLU(), torch::nn::Linear(5, 7));
  const auto a = std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->ptr(0));
  const auto b = std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->ptr(2));
  a->weight[1].zero_();            // nothing comes out of this channel but its bias
  b->weight.select(1, 3).zero_();  // and nobody reads this one
  const auto captured = capture(*model, {torch::randn({2, 6})});
  const auto equal = equalize_layers(captured);
  const Tensor first = blocks_of_layer(*equal, "0"), second = blocks_of_layer(*equal, "2");
  for (int64_t i = 0; i < 5; ++i) {
    const double r1 = a->weight[i].abs().max().item<double>(),
                 r2 = b->weight.select(1, i).abs().max().item<double>();
    const double s = r1 > 0 && r2 > 0 ? std::sqrt(r1 / r2) : 1;
    EXPECT_LT((first[0][i].flatten() * s - a->weight[i]).abs().max().item<double>(), 1e-6) << i;
    EXPECT_LT((second[0].select(1, i).flatten() / s - b->weight.select(1, i)).abs().max().item<double>(),
              1e-6);
  }
}

TEST(EqualizeLayers, DeadChannelsKeepTheirBiases) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(4);
  for (const double share : {0x1p-25, 1e-37, 1e-42}) {
    EqualNet model({});
    model.first->weight.mul_(1 / model.first->weight.abs().max());
    model.first->weight[2].mul_(share / model.first->weight[2].abs().max());
    const Tensor x = torch::randn({4, 3, 8, 8});
    const auto captured = capture(model, {x});
    captured->eval();
    const auto equal = equalize_layers(captured);
    EXPECT_LT(relative(equal->forward(x), captured->forward(x)), kFloatBound) << share;
    for (const auto& node : equal->graph().nodes()) {
      if (node->scope != "first" || !node->is("aten::conv2d")) continue;
      const Tensor bias = equal->graph().attribute_tensor(node->arg("bias").value);
      EXPECT_EQ(bias[2].item<float>(), model.first->bias[2].item<float>()) << share;
      EXPECT_NE(bias[3].item<float>(), model.first->bias[3].item<float>()) << share;
    }
  }
}

TEST(EqualizeLayers, Relu6IsKeptOrReplacedByName) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(5);
  EqualNet model({.relu6 = true});
  const Tensor x = 0.01 * torch::randn({4, 3, 8, 8});  // far below 6
  const auto captured = capture(model, {x});
  graph::PassReport report;
  const auto kept = equalize_layers(captured, false, &report);
  EXPECT_LT(relative(kept->forward(x), captured->forward(x)), kFloatBound);
  EXPECT_LT(relative(kept->forward(1000 * x), captured->forward(1000 * x)), kFloatBound);
  EXPECT_SAYS(report.near_misses[0], "first: channels not equalized with those behind: '");
  EXPECT_SAYS(report.near_misses[0], "' clamps at 6");
  EXPECT_EQ(report.changes.size(), 3U);
  const auto replaced = equalize_layers(captured, true, &report);
  EXPECT_EQ(report.changes[0], "first: channels equalized with depth, relu6 became relu");
  EXPECT_LT(relative(replaced->forward(x), captured->forward(x)), kFloatBound);
  EXPECT_GT(relative(replaced->forward(1000 * x), captured->forward(1000 * x)), 0.1);
}

/// What no pair may be made of: another reader, a curve, a sum, a weight that is read twice, other
/// dimensions.
struct NoPairs : torch::nn::Module {
  explicit NoPairs(int what) : what(what) {
    a = register_module("a", torch::nn::Linear(8, 8));
    b = register_module("b", torch::nn::Linear(8, 8));
    conv = register_module("conv", torch::nn::Conv1d(8, 8, 1));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = a(x);
    switch (what) {
      case 0:
        return b(torch::relu(y)) + y;
      case 1:
        return b(torch::tanh(y));
      case 2:
        return b(y + 1);
      case 3:
        return a(torch::relu(y));
      case 4:
        return conv(torch::relu(y));
      case 5:
        return b(torch::avg_pool1d(y, 3, 1, 1));
      case 6:
        return b(conv(x));
      case 7:
        return b(torch::clamp(y, -1, 1));
      default:
        return b(torch::leaky_relu(y, -0.5));
    }
  }
  int what;
  torch::nn::Linear a{nullptr}, b{nullptr};
  torch::nn::Conv1d conv{nullptr};
};

TEST(EqualizeLayers, WhatIsNoPairStays) {
  const at::NoGradGuard no_grad;
  for (int what = 0; what < 9; ++what) {
    torch::manual_seed(6);
    NoPairs model(what);
    model.a->weight.mul_(at::logspace(-1, 1, 8).unsqueeze(1));
    const Tensor x = torch::randn({2, 8, 8});
    const auto captured = capture(model, {x});
    graph::PassReport report;
    const auto equal = equalize_layers(captured, true, &report);
    EXPECT_TRUE(report.changes.empty()) << what << ": " << report.changes[0];
    EXPECT_FALSE(report.near_misses.empty());
    EXPECT_TRUE(equal->forward(x).equal(captured->forward(x))) << what;
  }
}

TEST(EqualizeLayers, NetworksOfTheRegistryStayWhatTheyAre) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"lenet5", "resnet20", "mobilenet_v2"}) {
    torch::manual_seed(3);
    const auto model = models::make_model(name);
    const Tensor x = torch::randn({4, 3, 32, 32});
    for (int i = 0; i < 2; ++i) model->forward(x);
    model->eval();
    const auto captured = capture(*model, {x});
    graph::PassReport report;
    const auto equal = equalize_layers(captured, false, &report);
    EXPECT_FALSE(report.changes.empty()) << name;
    EXPECT_LT(relative(equal->forward(x), captured->forward(x)), 1e-4) << name;
  }
}

TEST(EqualizeLayers, MakesOneScaleForAWeightEnough) {
  const at::NoGradGuard no_grad;
  torch::manual_seed(7);
  EqualNet model({});
  const Tensor x = torch::randn({16, 3, 8, 8});
  const auto captured = capture(model, {x});
  Recipe plain = Recipe::x86_int8();
  plain.weight.scheme.granularity = PerTensor{};
  Recipe recipe = plain;
  recipe.methods.method = {"cle"};
  const auto loss = [&](const Recipe& one) {
    const auto made = quantize(captured, one, [&](graph::GraphModule& model) { model.forward(x); });
    return relative(made->forward(x), captured->forward(x));
  };
  EXPECT_LT(loss(recipe), 0.6 * loss(plain));
}

TEST(EqualizeLayers, BadInputIsSaid) {
  const at::NoGradGuard no_grad;
  EXPECT_SAYS(error_of([] { equalize_layers(nullptr); }), "expected a captured model, got null");
  EqualNet model({});
  model.mix->weight[0][0].fill_(NAN);
  const auto captured = capture(model, {torch::randn({2, 3, 8, 8})});
  EXPECT_SAYS(error_of([&] { equalize_layers(captured); }), "expected finite weights of 'mix'");
}

}  // namespace
}  // namespace ulp::quant
