// Cutting by hand: what is kept, what is refused, and optimizers that go along.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/amp/optimizer/fused_optimizer.h"

namespace ulp::test {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// conv, norm, relu, conv, pooling, linear.
struct CutNet : nn::Module {
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(8));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(8, 6, 1));
  nn::Linear fc = register_module("fc", nn::Linear(6, 4));
  Tensor forward(const Tensor& x) { return fc(torch::relu(conv2(torch::relu(bn(conv1(x))))).mean({2, 3})); }
};

struct Cuttable {
  CutNet net;
  Captured module;
  prune::Groups groups;
  explicit Cuttable(c10::ScalarType type = torch::kFloat) {
    torch::manual_seed(4);
    net.to(torch::kDouble);
    net.to(type);
    module = capture(net, {torch::randn({2, 3, 5, 5}, type)});
    groups = prune::groups(module->graph());
  }
};

TEST(Cut, KeepsNamesModesLayoutsAndGradients) {
  Cuttable c;
  {
    const torch::NoGradGuard no_grad;
    c.net.conv1->weight.set_data(c.net.conv1->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  c.net.fc->bias.set_requires_grad(false);
  c.module->forward(torch::randn({2, 3, 5, 5})).sum().backward();
  c.module->eval();
  ASSERT_EQ(c.groups.groups.size(), 2u) << words(c.groups);
  const auto [small, kept] = prune::remove_units(*c.module, c.groups, {{{1, 6}, {5}}});
  EXPECT_FALSE(small->is_training());
  EXPECT_EQ(kept.at("conv1.weight")[0], (std::vector<int64_t>{0, 2, 3, 4, 5, 7}));
  EXPECT_EQ(kept.at("conv1.weight")[1], (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(kept.at("conv2.weight")[0], (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(kept.at("bn.running_var")[0], kept.at("conv1.weight")[0]);
  const auto parameters = small->named_parameters();
  EXPECT_EQ(parameters.keys(), c.module->named_parameters().keys());
  EXPECT_EQ(parameters["conv2.weight"].sizes(), (std::vector<int64_t>{5, 6, 1, 1}));
  EXPECT_TRUE(parameters["conv1.weight"].is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(parameters["fc.bias"].requires_grad());
  EXPECT_TRUE(parameters["fc.weight"].requires_grad());
  for (const auto& item : c.module->named_parameters()) {
    EXPECT_TRUE(torch::equal(kept_part(item.value(), kept.at(item.key())), parameters[item.key()]));
    EXPECT_FALSE(item.value().is_alias_of(parameters[item.key()])) << item.key();
    if (!item.value().grad().defined()) continue;
    EXPECT_TRUE(
        torch::equal(kept_part(item.value().grad(), kept.at(item.key())), parameters[item.key()].grad()));
  }
  // The old module is as it was, and the new one can be cut again.
  EXPECT_EQ(c.net.conv1->weight.size(0), 8);
  const auto again = prune::groups(small->graph());
  ASSERT_EQ(again.groups.size(), 2u);
  EXPECT_EQ(again.groups[0].units, 6);
  EXPECT_EQ(
      prune::remove_units(*small, again, {{{0}, {}}}).module->forward(torch::randn({1, 3, 5, 5})).sizes(),
      (std::vector<int64_t>{1, 4}));
}

TEST(Cut, RefusesWhatCannotBe) {
  Cuttable c;
  EXPECT_ERROR(prune::remove_units(*c.module, c.groups, {{{1}}}),
               "expected removals for each of 2 groups, got 1");
  EXPECT_ERROR(prune::remove_units(*c.module, c.groups, {{{8}, {}}}),
               "expected units below 8 of 'conv1', got 8");
  EXPECT_ERROR(prune::remove_units(*c.module, c.groups, {{{3, 3}, {}}}),
               "expected each unit of 'conv1' once, got 3 twice");
  EXPECT_ERROR(prune::remove_units(*c.module, c.groups, {{{}, {0, 1, 2, 3, 4, 5}}}),
               "expected at least one unit of 'conv2' to stay, got all 6 removed");
  const auto small = prune::remove_units(*c.module, c.groups, {{{1}, {}}}).module;
  EXPECT_ERROR(prune::remove_units(*small, c.groups, {{{7}, {}}}), "expected the groups of this graph");
  EXPECT_ERROR(prune::removals_of(c.groups, "fc.weight", 0, {1}),
               "got 1: a result of the model keeps its channels");
  EXPECT_ERROR(prune::removals_of(c.groups, "conv1.weight", 0, {9}), "expected indices that can be removed");
}

TEST(Cut, FindsUnitsByIndex) {
  Cuttable c;
  EXPECT_EQ(prune::removals_of(c.groups, "bn.weight", 0, {2, 0}).units,
            (std::vector<std::vector<int64_t>>{{0, 2}, {}}));
  EXPECT_EQ(prune::removals_of(c.groups, "fc.weight", 1, {4}).units,
            (std::vector<std::vector<int64_t>>{{}, {4}}));
}

TEST(Cut, ZeroUnitsLeavesVariancesAndOthers) {
  Cuttable c;
  const Captured zeroed = masked(*c.module, c.groups, {{{2}, {}}});
  const auto parameters = zeroed->named_parameters(), buffers = zeroed->named_buffers();
  EXPECT_EQ(parameters["conv1.weight"][2].abs().sum().item<double>(), 0);
  EXPECT_EQ(parameters["bn.weight"][2].item<double>(), 0);
  EXPECT_EQ(parameters["conv2.weight"].select(1, 2).abs().sum().item<double>(), 0);
  EXPECT_EQ(buffers["bn.running_var"][2].item<double>(), 1);
  EXPECT_TRUE(torch::equal(parameters["conv1.weight"][3], c.net.conv1->weight[3]));
}

/// A step's gradients from a fixed batch, in train mode.
void backward_of(graph::GraphModule& module, int seed, c10::ScalarType type) {
  module.train();
  module.zero_grad();
  torch::manual_seed(static_cast<uint64_t>(seed));
  module.forward(torch::randn({4, 3, 5, 5}, type)).square().sum().backward();
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;

/// Steps, zeroes and cuts, steps again: the cut network's weights are those of the zeroed one. The zeroed network's moments
/// of removed weights are zeroed with it, as a mask would.
void expect_same_steps(const MakeOptimizer& make, c10::ScalarType type, double tolerance) {
  Cuttable c(type);
  auto optimizer = make(c.module->parameters());
  for (int i = 0; i < 3; ++i) {
    backward_of(*c.module, i, type);
    optimizer->step();
  }
  const prune::Removals removals = some_units(c.groups, 0.4, 3);
  prune::zero_units(*c.module, c.groups, removals);
  const auto [small, kept] = prune::remove_units(*c.module, c.groups, removals);
  // A second optimizer with the same state goes with the cut network.
  auto other = make(c.module->parameters());
  for (const auto& [key, state] : optimizer->state()) other->state()[key] = state->clone();
  prune::remove_from_optimizer(*other, kept, *c.module, *small);
  for (const Tensor& parameter : small->parameters()) {
    const auto& params = other->param_groups()[0].params();
    EXPECT_TRUE(std::ranges::any_of(params, [&](const Tensor& p) { return p.is_same(parameter); }));
  }
  for (int i = 3; i < 6; ++i) {
    backward_of(*c.module, i, type);
    optimizer->step();
    prune::zero_units(*c.module, c.groups, removals);
    backward_of(*small, i, type);
    other->step();
    const auto parameters = small->named_parameters();
    for (const auto& item : c.module->named_parameters())
      expect_near(kept_part(item.value(), kept.at(item.key())), parameters[item.key()], tolerance,
                  item.key());
  }
}

TEST(CutOptimizer, LibTorchsNextStepsAreThoseOfTheMaskedNetwork) {
  using namespace torch::optim;
  expect_same_steps([](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.01).momentum(0.9)); },
                    torch::kDouble, 1e-9);
  expect_same_steps([](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); },
                    torch::kDouble, 1e-9);
  expect_same_steps([](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); }, torch::kDouble,
                    1e-9);
  expect_same_steps(
      [](auto p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5).centered(true)); },
      torch::kDouble, 1e-9);
  expect_same_steps([](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01)); }, torch::kDouble,
                    1e-9);
}

TEST(CutOptimizer, FusedNextStepsAreThoseOfTheMaskedNetwork) {
  expect_same_steps(
      [](auto p) { return std::make_unique<amp::FusedOptimizer>(p, amp::AdamRule{.lr = 0.01}); },
      torch::kFloat, 1e-3);
  expect_same_steps(
      [](auto p) {
        return std::make_unique<amp::FusedOptimizer>(p, amp::SgdRule{.lr = 0.01, .momentum = 0.9});
      },
      torch::kFloat, 1e-3);
}

TEST(CutOptimizer, MastersOfBf16AreCutAlong) {
  Cuttable c;
  c.module->to(torch::kBFloat16);
  for (const auto masters :
       {amp::MasterWeights::fp32, amp::MasterWeights::split, amp::MasterWeights::kahan}) {
    amp::FusedOptimizer optimizer(c.module->parameters(), amp::AdamRule{.lr = 0.01}, masters);
    for (const Tensor& p : c.module->parameters()) p.mutable_grad() = torch::randn_like(p);
    optimizer.step();
    std::map<std::string, Tensor> weights;
    for (const auto& item : c.module->named_parameters())
      weights[item.key()] = optimizer.master_weight(item.value());
    const auto [small, kept] = prune::remove_units(*c.module, c.groups, some_units(c.groups, 0.4, 3));
    prune::remove_from_optimizer(optimizer, kept, *c.module, *small);
    for (const auto& item : small->named_parameters())
      EXPECT_TRUE(torch::equal(optimizer.master_weight(item.value()),
                               kept_part(weights.at(item.key()), kept.at(item.key()))));
    for (const Tensor& p : small->parameters()) p.mutable_grad() = torch::randn_like(p);
    optimizer.step();
  }
}

TEST(CutOptimizer, RefusesWhatItDoesNotKnowAndChangesNothing) {
  Cuttable c;
  const auto [small, kept] = prune::remove_units(*c.module, c.groups, {{{1}, {}}});
  torch::optim::LBFGS unknown(c.module->parameters());
  const auto closure = [&] {
    c.module->zero_grad();
    const Tensor loss = c.module->forward(torch::ones({2, 3, 5, 5})).square().sum();
    loss.backward();
    return loss;
  };
  unknown.step(closure);
  EXPECT_ERROR(prune::remove_from_optimizer(unknown, kept, *c.module, *small), "expected the state of SGD");
  EXPECT_TRUE(unknown.param_groups()[0].params()[0].is_same(c.module->parameters()[0]));
  torch::optim::SGD stranger({torch::ones({3})}, 0.1);
  EXPECT_ERROR(prune::remove_from_optimizer(stranger, kept, *c.module, *small),
               "expected parameters of the old module");
}

}  // namespace
}  // namespace ulp::test
