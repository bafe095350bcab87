// Cuts at the edges: computed weights, memory that is shared, masks of optimizers, caps over several cuts, nothing to count.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "support.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/prune/masks/bit_mask.h"
#include "ulp/prune/structured/channel_pruning_recipe.h"

namespace ulp::test {
namespace {

using at::Tensor;
using prune::tests::error_of;

/// A network of one function of its parameters.
struct Written : torch::nn::Module {
  using Run = std::function<Tensor(const Written&, const Tensor&)>;
  explicit Written(Run run_in) : run(std::move(run_in)) {}
  Tensor add(const std::string& name, at::IntArrayRef sizes) {
    return register_parameter(name, torch::randn(sizes));
  }
  Tensor operator[](const std::string& name) const { return named_parameters()[name]; }
  Tensor forward(const Tensor& x) { return run(*this, x); }
  Run run;
};

Captured captured(const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters,
                  const Tensor& x, Written::Run run) {
  torch::manual_seed(1);
  const auto net = std::make_shared<Written>(std::move(run));
  for (const auto& [name, sizes] : parameters) net->add(name, sizes);
  Captured module = capture(*net, {x});
  module->to(torch::kDouble);
  return module;
}

/// What is cut, if anything is, leaves the masked network.
void expect_honest_cut(const Captured& module, const Tensor& x) {
  const prune::Groups groups = prune::groups(module->graph());
  SCOPED_TRACE(words(groups));
  expect_cut_is_masked(module, {{x.to(torch::kDouble)}}, groups, some_units(groups, 0.4, 3), 1e-9, false);
}

TEST(CutEdges, ConvolutionsWithComputedWeightsThatAreNeverZero) {
  const Tensor x = torch::randn({2, 3, 6, 6});
  expect_honest_cut(captured({{"w", {8, 3, 3, 3}}, {"w2", {4, 8, 3, 3}}}, x,
                             [](const Written& n, const Tensor& in) {
                               return torch::conv2d(torch::conv2d(in, torch::softplus(n["w"])),
                                                    torch::softplus(n["w2"]));
                             }),
                    x);
  expect_honest_cut(captured({{"w", {8, 3, 3, 3}}}, x,
                             [](const Written& n, const Tensor& in) {
                               return torch::conv2d(in, torch::softplus(n["w"])).sum(1);
                             }),
                    x);
  expect_honest_cut(captured({{"w", {8, 3, 3, 3}}, {"w2", {6, 4, 1, 1}}}, x,
                             [](const Written& n, const Tensor& in) {
                               return torch::conv2d(torch::sigmoid(torch::conv2d(in, n["w"])),
                                                    torch::exp(n["w2"]), Tensor(), at::IntArrayRef{1},
                                                    at::IntArrayRef{0}, at::IntArrayRef{1}, 2);
                             }),
                    x);
  // The bias is never zero, the weight is.
  expect_honest_cut(captured({{"w", {8, 3, 3, 3}}, {"b", {8}}}, x,
                             [](const Written& n, const Tensor& in) {
                               return torch::conv2d(in, n["w"], torch::exp(n["b"])).sum(1);
                             }),
                    x);
}

/// Cut, as expect_honest_cut has it, and something is.
void expect_cut(const Captured& module, const Tensor& x) {
  EXPECT_FALSE(prune::groups(module->graph()).groups.empty()) << words(prune::groups(module->graph()));
  expect_honest_cut(module, x);
}

TEST(CutEdges, NumbersOverTensors) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> layers = {{"w", {8, 6}}, {"w2", {5, 8}}};
  const Tensor x = torch::randn({3, 6});
  const auto through = [&](std::function<Tensor(const Tensor&)> between) {
    expect_cut(captured(layers, x,
                        [=](const Written& n, const Tensor& in) {
                          return torch::linear(between(torch::linear(in, n["w"])), n["w2"]);
                        }),
               x);
  };
  through([](const Tensor& h) { return 1.0 / (1 + h.exp()); });
  through([](const Tensor& h) { return 2 / (h.abs() + 0.5) - h; });
  through([](const Tensor& h) { return torch::fill(h, 0.25) * h; });
}

/// Tokens in an order that is drawn, as a masked autoencoder has them.
TEST(CutEdges, TokensByNumber) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> layers = {{"w", {8, 6}}, {"w2", {5, 8}}};
  const Tensor x = torch::randn({3, 4, 6});
  expect_cut(captured(layers, x,
                      [](const Written& n, const Tensor& in) {
                        const Tensor h = torch::relu(torch::linear(in, n["w"]));
                        const Tensor ids = in.sum(2).argsort(int64_t{1}).slice(1, 0, 2).unsqueeze(2);
                        const Tensor kept = h.gather(1, ids.repeat({1, 1, h.size(2)}));
                        const Tensor seen = h.gather(1, ids.expand({-1, -1, h.size(2)}));
                        return torch::linear(kept + seen * 2, n["w2"]);
                      }),
             x);
  expect_honest_cut(captured(layers, x,  // along the channels
                             [](const Written& n, const Tensor& in) {
                               const Tensor h = torch::relu(torch::linear(in, n["w"]));
                               return torch::linear(h.gather(2, h.argsort(int64_t{2})), n["w2"]);
                             }),
                    x);
  expect_honest_cut(captured(layers, x,  // a part of the channels
                             [](const Written& n, const Tensor& in) {
                               const Tensor h = torch::relu(torch::linear(in, n["w"]));
                               return h.gather(1, h.argsort(int64_t{1}).slice(2, 0, 3)) +
                                      torch::linear(h, n["w2"]).sum(2, true);
                             }),
                    x);
}

/// Two layers of 9 units whose second weight lives in the memory of the first.
Captured two_layers_of_one_memory(bool transposed) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(9, 9), torch::nn::ReLU(), torch::nn::Linear(9, 9),
                            torch::nn::ReLU(), torch::nn::Linear(9, 2));
  const Tensor first = net->ptr<torch::nn::LinearImpl>(0)->weight.data();
  net->ptr<torch::nn::LinearImpl>(2)->weight.set_data(transposed ? first.t() : first);
  return capture(net, {torch::randn({2, 9})});
}

TEST(CutEdges, MemoryThatTwoTensorsHaveStaysOne) {
  const Captured module = two_layers_of_one_memory(false);
  const prune::Groups groups = prune::groups(module->graph());
  const Captured small = prune::remove_units(*module, groups, some_units(groups, 0.3, 1)).module;
  const auto parameters = small->named_parameters();
  EXPECT_EQ(parameters["0.weight"].data_ptr(), parameters["2.weight"].data_ptr());
  EXPECT_FALSE(parameters["0.weight"].is_same(parameters["2.weight"]));
}

TEST(CutEdges, MemoryInTwoShapesIsNotCut) {
  const Captured module = two_layers_of_one_memory(true);
  const prune::Groups groups = prune::groups(module->graph());
  EXPECT_EQ(group_with(groups, "0.weight", 0), nullptr);
  EXPECT_NE(words(groups).find("share memory in two shapes"), std::string::npos) << words(groups);
}

TEST(CutEdges, MasksOfAFusedOptimizerAreCutAlong) {
  for (const bool channels_last : {false, true}) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::ReLU(), torch::nn::Conv2d(8, 4, 3));
    if (channels_last) {
      for (Tensor& parameter : net->parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    const Captured module = capture(net, {torch::randn({2, 3, 8, 8})});
    amp::FusedOptimizer optimizer(module->parameters(), amp::SgdRule{.lr = 0.1, .momentum = 0.9});
    const Tensor weight = module->named_parameters()["2.weight"];
    const Tensor keep = prune::tests::random_mask(weight.sizes(), 3);
    optimizer.set_mask(weight, prune::pack_mask(keep));
    const prune::Groups groups = prune::groups(module->graph());
    const auto [small, kept] = prune::remove_units(*module, groups, some_units(groups, 0.3, 1));
    prune::remove_from_optimizer(optimizer, kept, *module, *small);
    EXPECT_EQ(optimizer.mask_of(weight), nullptr);
    const Tensor now = small->named_parameters()["2.weight"], before = now.detach().clone();
    for (Tensor& parameter : small->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    optimizer.step();
    EXPECT_TRUE(now.ne(before).equal(kept_part(keep, kept.at("2.weight"))));
  }
}

Captured hundred_neurons() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 100), torch::nn::ReLU(), torch::nn::Linear(100, 2));
  return capture(net, {torch::randn({2, 6})});
}

TEST(CutEdges, ACapHoldsOverSeveralCuts) {
  const Captured module = hundred_neurons();
  const prune::ChannelPruningRecipe recipe{.cap = 0.5};
  const auto full = prune::widths_of(prune::groups(module->graph()));
  EXPECT_EQ(full.at("0"), 100);
  Captured now = prune::prune_by_recipe(*module, recipe, 0.6, {.full_widths = full}).module;
  EXPECT_EQ(now->named_parameters()["0.weight"].size(0), 60);
  EXPECT_SAYS(error_of([&] { prune::prune_by_recipe(*now, recipe, 0.6, {.full_widths = full}); }),
              "at the closest");
  now = prune::prune_by_recipe(*now, recipe, 0.9, {.full_widths = full}).module;
  EXPECT_EQ(now->named_parameters()["0.weight"].size(0), 54);
}

TEST(CutEdges, WhatStaysWholeIsNamed) {
  const Captured module = hundred_neurons();
  const auto reasons = [&](const prune::ChannelPruningRecipe& recipe) {
    std::string text;
    for (const prune::Obstacle& one : prune::prune_by_recipe(*module, recipe, 1).whole)
      text += one.layer + ": " + one.reason + "; ";
    return text;
  };
  EXPECT_SAYS(reasons({.criterion = prune::Criterion::scale}), "0: the criterion scale says nothing of it");
  EXPECT_SAYS(reasons({.skip = {"0"}}), "0: it is in skip");
  EXPECT_EQ(reasons({}), "");
}

TEST(CutEdges, ANetworkWithoutMultiplicationsHasNoShareOfThem) {
  torch::manual_seed(1);
  const Captured module =
      captured({{"a", {6}}, {"b", {6}}}, torch::randn({2, 1}),
               [](const Written& n, const Tensor& x) { return (x * n["a"] * n["b"]).sum(1); });
  prune::ChannelPruningRecipe recipe;
  EXPECT_SAYS(error_of([&] { prune::prune_by_recipe(*module, recipe, 0.5); }),
              "expected a network with macs");
  recipe.measure = prune::Measure::bytes;
  EXPECT_EQ(prune::prune_by_recipe(*module, recipe, 0.5).module->named_parameters()["a"].numel(), 3);
}

}  // namespace
}  // namespace ulp::test
