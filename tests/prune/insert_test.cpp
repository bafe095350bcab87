// Units that are added and replaced by index.
#include "ulp/prune/structured/insert.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "networks/networks.h"
#include "random_channels.h"
#include "support.h"
#include "ulp/lower/lower.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/select.h"

namespace ulp::test {
namespace {

using prune::tests::error_of;

/// Every third unit of each group that may have copies.
std::vector<std::vector<int64_t>> every_third(const prune::Groups& groups) {
  std::vector<std::vector<int64_t>> units;
  for (const prune::Group& group : groups.groups) {
    std::vector<int64_t>& own = units.emplace_back();
    if (!prune::can_insert(group)) continue;
    for (int64_t unit = group.units - 1; unit >= 0; unit -= 3) own.push_back(unit);
  }
  return units;
}

/// The wider network computes the same in eval mode; returns whether it is wider.
bool expect_same_when_wider(graph::GraphModule& module, const std::vector<at::Tensor>& inputs) {
  const torch::NoGradGuard no_grad;
  module.eval();
  const prune::Groups groups = prune::groups(module.graph());
  const Captured wider = prune::insert_units(module, groups, every_third(groups));
  torch::manual_seed(1);
  const auto want = module.forward_all(inputs);
  torch::manual_seed(1);
  const auto got = wider->forward_all(inputs);
  for (size_t i = 0; i < want.size(); ++i) expect_near(want[i], got[i], 1e-4, "result " + std::to_string(i));
  return prune::size_of(wider->graph()).parameters > prune::size_of(module.graph()).parameters;
}

TEST(InsertUnits, ReferenceNetworksComputeTheSame) {
  for (const char* name : {"lenet5", "resnet20", "mobilenet_v2", "shufflenet_v2_x1_0", "unet"}) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    const auto model = models::make_model(name, {.in_channels = 3, .num_classes = 5, .image_size = 32});
    const Captured module = capture(*model, {torch::randn({2, 3, 32, 32})});
    EXPECT_TRUE(expect_same_when_wider(*module, {torch::randn({2, 3, 32, 32})}));
  }
}

TEST(InsertUnits, NetworksAsUsersWriteThemComputeTheSame) {
  size_t wider = 0;
  for (const Network& network : networks()) {
    SCOPED_TRACE(network.name);
    torch::manual_seed(1);
    const Instance model = network.make();
    const auto inputs = network.inputs(2);
    const Captured module = graph::capture(*model.root, model.forward, inputs);
    if (network.name == "mae") {  // heads that a reshape makes of queries, keys and values in one layer
      EXPECT_THROW(expect_same_when_wider(*module, inputs), Error);
      continue;
    }
    wider += expect_same_when_wider(*module, inputs);
  }
  EXPECT_GT(wider, 10);
}

TEST(InsertUnits, RandomNetworksComputeTheSame) {
  size_t wider = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    RandomChannels net(seed);
    SCOPED_TRACE(net.words());
    const Captured module = capture(net, {torch::randn({2, 3, 8, 8})});
    wider += expect_same_when_wider(*module, {torch::randn({2, 3, 8, 8})});
  }
  EXPECT_GT(wider, 10);
}

TEST(InsertUnits, TheSeedsNetworkGrowsBy1044WeightsANeuron) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(1024, 100).bias(false)),
                            torch::nn::ReLU(),
                            torch::nn::Linear(torch::nn::LinearOptions(100, 20).bias(false)));
  const Captured module = capture(net, {torch::randn({2, 1024})});
  const prune::Groups groups = prune::groups(module->graph());
  const Captured wider = prune::insert_units(*module, groups, {{7}});
  EXPECT_EQ(prune::size_of(wider->graph()).parameters, 104400 + 1044);
  const auto parameters = wider->named_parameters();
  EXPECT_TRUE(parameters["0.weight"][8].equal(parameters["0.weight"][7]));
  EXPECT_EQ(parameters["2.weight"].select(1, 8).abs().sum().item<float>(), 0);
  EXPECT_GT(parameters["2.weight"].select(1, 7).abs().sum().item<float>(), 0);
}

TEST(ReplaceUnit, TakesTheSlicesOfAnotherNetwork) {
  const Captured module = prune::tests::two_layers(1), other = prune::tests::two_layers(2);
  const prune::Groups groups = prune::groups(module->graph()), others = prune::groups(other->graph());
  prune::replace_unit(*module, groups.groups.at(0), 3, *other, others.groups.at(0), 5);
  const auto now = module->named_parameters(), from = other->named_parameters();
  EXPECT_TRUE(now["fc1.weight"][3].equal(from["fc1.weight"][5]));
  EXPECT_TRUE(now["fc1.bias"][3].equal(from["fc1.bias"][5]));
  EXPECT_TRUE(now["fc2.weight"].select(1, 3).equal(from["fc2.weight"].select(1, 5)));
  EXPECT_TRUE(now["fc1.weight"][4].equal(prune::tests::two_layers(1)->named_parameters()["fc1.weight"][4]));
}

TEST(InsertUnits, RefusesWhatCannotBe) {
  const Captured module = prune::tests::two_layers(), other = prune::tests::two_layers(2);
  const prune::Groups groups = prune::groups(module->graph());
  const prune::Group& group = groups.groups.at(0);
  EXPECT_SAYS(error_of([&] { prune::insert_units(*module, groups, {}); }), "units for each of 1 groups");
  EXPECT_SAYS(error_of([&] { prune::insert_units(*module, groups, {{20}}); }),
              "below 20 of 'fc1', each once, got 20");
  EXPECT_SAYS(error_of([&] { prune::insert_units(*module, groups, {{2, 2}}); }), "each once, got 2");
  EXPECT_SAYS(error_of([&] { prune::replace_unit(*module, group, 20, *other, group, 0); }), "got 20 and 0");
  torch::nn::Sequential stranger(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  const Captured strange = capture(stranger, {torch::randn({1, 4})});
  EXPECT_SAYS(error_of([&] {
                prune::replace_unit(*module, group, 0, *strange, prune::groups(strange->graph()).groups.at(0),
                                    0);
              }),
              "a group with 'fc1.weight'");
}

}  // namespace
}  // namespace ulp::test
