// The networks of tests/networks give their bits under every plan.
#include "networks/networks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "memory/plans.h"

namespace {

using ulp::test::expect_the_same_step;

class CheckpointedNetworks : public testing::TestWithParam<std::string> {};

TEST_P(CheckpointedNetworks, GiveTheBitsOfTheNetwork) {
  for (const ulp::test::Network& network : ulp::test::networks()) {
    if (network.name != GetParam()) continue;
    torch::manual_seed(1);
    const ulp::test::Instance made = network.make();
    made.root->train();
    const auto inputs = network.inputs(2);
    const auto module = ulp::graph::capture(*made.root, made.forward, inputs, {});
    module->train();
    expect_the_same_step(*module, network.inputs(3), network.name);
  }
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const ulp::test::Network& network : ulp::test::networks()) names.push_back(network.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointedNetworks, testing::ValuesIn(network_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
