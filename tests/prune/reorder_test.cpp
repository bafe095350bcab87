// Other orders of units: the network computes the same, and n:m keeps more.
#include "ulp/prune/structured/reorder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "image_networks.h"
#include "networks/networks.h"
#include "random_channels.h"
#include "support.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"

namespace ulp::test {
namespace {

using prune::tests::error_of;

std::vector<int64_t> shuffled(int64_t units, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(units));
  for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int64_t>(k);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// Reorders all groups that may be; returns how many those are.
size_t expect_same_after_reordering(graph::GraphModule& module, const std::vector<at::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  module.eval();
  torch::manual_seed(1);
  const auto want = module.forward_all(inputs);
  const prune::Groups groups = prune::groups(module.graph());
  size_t reordered = 0;
  for (const prune::Group& group : groups.groups) {
    if (!prune::can_reorder(group)) continue;
    prune::reorder_units(module, group, shuffled(group.units, ++reordered));
  }
  torch::manual_seed(1);
  const auto got = module.forward_all(inputs);
  for (size_t i = 0; i < want.size(); ++i) expect_near(want[i], got[i], 1e-4, "result " + std::to_string(i));
  return reordered;
}

TEST(Reorder, ImageNetworksComputeTheSame) {
  for (const std::string& name : models_of_numbers()) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    const auto model = models::make_model(name, {.in_channels = 3, .num_classes = 5, .image_size = 16});
    const Captured module = capture(*model, {torch::randn({2, 3, 16, 16})});
    EXPECT_GT(expect_same_after_reordering(*module, {torch::randn({2, 3, 16, 16})}), 0);
  }
}

TEST(Reorder, NetworksAsUsersWriteThemComputeTheSame) {
  size_t reordered = 0;
  for (const Network& network : networks()) {
    SCOPED_TRACE(network.name);
    torch::manual_seed(1);
    const Instance model = network.make();
    const auto inputs = network.inputs(2);
    const Captured module = graph::capture(*model.root, model.forward, inputs);
    reordered += expect_same_after_reordering(*module, inputs);
  }
  EXPECT_GT(reordered, networks().size());
}

TEST(Reorder, RandomNetworksComputeTheSame) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RandomChannels net(seed);
    SCOPED_TRACE(net.words());
    const Captured module = capture(net, {torch::randn({2, 3, 8, 8})});
    expect_same_after_reordering(*module, {torch::randn({2, 3, 8, 8})});
  }
}

TEST(Reorder, TiedTensorsMoveOnce) {
  torch::manual_seed(1);
  const auto gpt2 = models::make_gpt2({.vocab_size = 30,
                                       .max_length = 9,
                                       .width = 16,
                                       .layers = 2,
                                       .heads = 4,
                                       .dropout = 0,
                                       .attention_dropout = 0});
  const at::Tensor ids = torch::randint(1, 30, {2, 9});
  EXPECT_GT(expect_same_after_reordering(*capture(*gpt2, {ids}), {ids}), 3);
}

/// fc2 reads 20 neurons; every other of them matters.
Captured two_layers_of_two_kinds() {
  const auto module = prune::tests::two_layers();
  const torch::NoGradGuard no_grad;
  at::Tensor weight = module->graph().find_attribute("fc2.weight")->tensor.detach();
  weight.copy_(torch::rand({5, 20}) + 1);
  // Neighbourhoods of large weights alone and of small ones alone lose half of the large ones.
  weight.narrow(1, 8, 12).mul_(1e-3);
  return module;
}

TEST(Reorder, NOfMKeepsMoreInTheOrderThatIsFound) {
  const prune::Recipe plain{.pattern = prune::Pattern::n_of_m(2, 4), .parameters = {"fc2"}};
  prune::Recipe reordering = plain;
  reordering.pattern.reorder = true;
  const at::Tensor x = torch::randn({6, 12});
  const auto error_with = [&](const prune::Recipe& recipe) {
    const torch::NoGradGuard no_grad;
    const Captured module = two_layers_of_two_kinds();
    const at::Tensor want = module->forward(x);
    const prune::PruneReport report = prune::prune(*module, recipe);
    EXPECT_EQ(report.kept(), 50);
    if (recipe.pattern.reorder) {
      EXPECT_EQ(report.reordered.size(), 1);
      EXPECT_LT(report.reordered.at(0).kept_before, 0.7);
      EXPECT_GT(report.reordered.at(0).kept, 0.99);
    }
    return (module->forward(x) - want).norm().item<double>();
  };
  EXPECT_LT(error_with(reordering), 0.05 * error_with(plain));
}

TEST(Reorder, APrunerReordersBeforeItTrains) {
  const Captured module = two_layers_of_two_kinds();
  prune::Recipe recipe{.pattern = prune::Pattern::n_of_m(2, 4), .parameters = {"fc2"}};
  recipe.pattern.reorder = true;
  prune::Pruner pruner(module, recipe);
  EXPECT_TRUE(pruner.step(0));
  EXPECT_EQ(pruner.report().reordered.size(), 1);
  EXPECT_EQ(pruner.report().kept(), 50);
  EXPECT_EQ(prune::Recipe::from_json(recipe.to_json()), recipe);
}

TEST(Reorder, RefusesWhatCannotBe) {
  const Captured module = prune::tests::two_layers();
  const prune::Groups groups = prune::groups(module->graph());
  const prune::Group& group = groups.groups.at(0);
  EXPECT_SAYS(error_of([&] {
                prune::reorder_units(*module, group, {0, 1});
              }),
              "each of the 20 units of 'fc1' once");
  EXPECT_SAYS(error_of([&] { prune::reorder_units(*module, group, std::vector<int64_t>(20, 3)); }), "once");
  EXPECT_SAYS(error_of([&] { prune::reorder_for_n_m(*module, {}); }), "expected a recipe of n_m");
  prune::Recipe recipe;
  recipe.pattern.reorder = true;
  EXPECT_SAYS(error_of([&] { recipe.validate(); }), "n_m with reorder");
  prune::prune(*module, {.amount = prune::Amount::share(0.5)});
  EXPECT_SAYS(error_of([&] { prune::reorder_units(*module, group, shuffled(20, 1)); }), "without a mask");
  prune::Group unlike = group;
  unlike.members[0].indices[0].push_back(19);
  EXPECT_SAYS(error_of([&] { prune::reorder_units(*prune::tests::two_layers(), unlike, shuffled(20, 1)); }),
              "alike");
}

}  // namespace
}  // namespace ulp::test
