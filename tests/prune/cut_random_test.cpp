// Random graphs: the cut one is the masked one, in both modes, with gradients.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "lower/random_net.h"
#include "random_channels.h"

namespace ulp::test {
namespace {

class CutRandom : public testing::TestWithParam<int> {
  void SetUp() override { torch::set_num_threads(1); }
};

TEST_P(CutRandom, ChannelsAreTheMaskedOnes) {
  const auto seed = static_cast<uint64_t>(GetParam());
  RandomChannels net(seed);
  SCOPED_TRACE(net.words());
  const Captured module = capture(net, {torch::randn({2, 3, 8, 8})});
  module->to(torch::kDouble);
  const prune::Groups groups = prune::groups(module->graph());
  SCOPED_TRACE(words(groups));
  EXPECT_FALSE(groups.groups.empty());
  const auto x = [](int64_t batch) { return std::vector{torch::randn({batch, 3, 8, 8}, torch::kDouble)}; };
  expect_cut_is_masked(module, {x(2), x(5)}, groups, some_units(groups, 0.3, seed), 1e-8);
  expect_cut_is_masked(module, {x(2)}, groups, some_units(groups, 1, seed), 1e-8);
}

TEST_P(CutRandom, GraphsOfAnyOpsAreTheMaskedOnes) {
  const auto seed = static_cast<uint64_t>(GetParam());
  recipe::RandomNet net(seed, {.steps = 16});
  SCOPED_TRACE(net.words());
  const graph::Forward forward = [&](const std::vector<at::Tensor>& inputs) {
    // Some values have to stay inside for anything to be free.
    const auto results = net.run(inputs);
    return c10::IValue(std::vector<at::Tensor>(results.begin(), results.begin() + 1));
  };
  const Captured module = graph::capture(net, forward, net.draw(3));
  const prune::Groups groups = prune::groups(module->graph());
  SCOPED_TRACE(words(groups));
  module->eval();
  expect_cut_is_masked(module, {net.draw(2), net.draw(4)}, groups, some_units(groups, 0.4, seed), 1e-3, false);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CutRandom, testing::Range(0, 40), [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace ulp::test
