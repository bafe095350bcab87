// Networks as users write them, in small: the cut one is the masked one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "networks/networks.h"
#include "ulp/models/text_registry.h"

namespace ulp::test {
namespace {

class CutNetwork : public testing::TestWithParam<size_t> {
  void SetUp() override { torch::set_num_threads(1); }
};

TEST_P(CutNetwork, IsTheMaskedOne) {
  const Network& network = networks()[GetParam()];
  torch::manual_seed(1);
  const Instance model = network.make();
  const Captured module = graph::capture(*model.root, model.forward, network.inputs(2));
  const prune::Groups groups = prune::groups(module->graph());
  if (std::getenv("ULP_SHOW")) std::cout << words(groups);
  const prune::Removals removals = some_units(groups, 0.4, 7);
  expect_cut_is_masked(module, {network.inputs(2), network.inputs(3)}, groups, removals, 2e-4, false);
}

INSTANTIATE_TEST_SUITE_P(All, CutNetwork, testing::Range<size_t>(0, networks().size()),
                         [](const auto& info) { return networks()[info.param].name; });

}  // namespace
}  // namespace ulp::test
