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

/// A network of any ops with a linear layer behind each result, so that channels end inside.
struct HeadedNet {
  recipe::RandomNet net;
  std::vector<at::Tensor> heads;
  explicit HeadedNet(uint64_t seed) : net(seed, {.steps = 16}) {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& result : net.run(net.draw(2)))
      heads.push_back(net.parameter({3, result.numel() / 2}));
  }
  Captured captured() {
    const graph::Forward forward = [&](const std::vector<at::Tensor>& inputs) {
      std::vector<at::Tensor> results = net.run(inputs);
      for (size_t i = 0; i < results.size(); ++i)
        results[i] = torch::linear(results[i].reshape({results[i].size(0), -1}), heads[i]);
      return c10::IValue(results);
    };
    return graph::capture(net, forward, net.draw(3));
  }
};

TEST_P(CutRandom, GraphsOfAnyOpsAreTheMaskedOnes) {
  const auto seed = static_cast<uint64_t>(GetParam());
  HeadedNet made(seed);
  SCOPED_TRACE(made.net.words());
  const Captured module = made.captured();
  const prune::Groups groups = prune::groups(module->graph());
  SCOPED_TRACE(words(groups));
  expect_cut_is_masked(module, {made.net.draw(2), made.net.draw(4)}, groups, some_units(groups, 0.4, seed),
                       1e-3, false);
}

/// Most of these graphs have something to cut, or the test above shows nothing.
TEST(CutRandomGraphs, HaveSomethingToCut) {
  int found = 0;
  for (uint64_t seed = 0; seed < 40; ++seed)
    found += !prune::groups(HeadedNet(seed).captured()->graph()).groups.empty();
  EXPECT_GE(found, 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CutRandom, testing::Range(0, 40),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace ulp::test
