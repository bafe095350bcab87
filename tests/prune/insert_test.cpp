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

struct Summed : torch::nn::Module {
  using Body = std::function<at::Tensor(Summed&, const at::Tensor&)>;
  explicit Summed(Body b) : body(std::move(b)) {}
  at::Tensor forward(const at::Tensor& x) { return body(*this, torch::relu(a(x))); }
  Body body;
  torch::nn::Linear a = register_module("a", torch::nn::Linear(6, 8));
  torch::nn::Linear c = register_module("c", torch::nn::Linear(8, 5));
  at::Tensor w = register_parameter("w", torch::randn({5, 8})),
             down = register_parameter("down", torch::randn({3, 8})),
             up = register_parameter("up", torch::randn({5, 3})),
             table = register_parameter("table", torch::randn({12, 8}));
  at::Tensor mask = register_buffer("mask", (torch::rand({5, 8}) > 0.5).to(torch::kFloat));
};

/// What adds up over units counts copies twice, but where a weight has zeros for them.
TEST(InsertUnits, UnitsThatAreAddedUpOtherwiseAreRefused) {
  using T = const at::Tensor&;
  const std::vector<Summed::Body> right = {
      [](Summed& n, T x) { return n.c(x); },
      [](Summed& n, T x) { return x.matmul(n.w.t()); },
      [](Summed& n, T x) { return torch::linear(x, torch::tanh(n.w)) + n.w.sum(1); },
      [](Summed& n, T x) { return torch::linear(x, n.mask * n.w); },
      [](Summed& n, T x) { return torch::linear(x, n.w * n.c->weight); },
      [](Summed& n, T x) { return n.c(x.cumsum(1)) * x.select(2, 7).unsqueeze(2); }};
  const std::vector<Summed::Body> refused = {
      [](Summed& n, T x) { return n.c(x) + x.sum(2, true); },
      [](Summed& n, T x) { return (x * torch::linear(x, n.table.slice(0, 0, 8))).sum(2); },
      [](Summed&, T x) { return x.matmul(x.transpose(1, 2)); },
      [](Summed&, T x) {
        return torch::einsum("bsd,btd->bst", {x, x * 2});
      },
      [](Summed& n, T x) { return torch::linear(x, torch::sigmoid(n.w)); },
      [](Summed& n, T x) { return torch::linear(x, n.w - n.c->weight); },
      [](Summed& n, T x) { return torch::linear(x, n.w + n.up.mm(n.down)); },  // LoRA
      [](Summed& n, T x) {
        return n.w.pow(2).sum(1) + n.w.sum() - 2 * x.matmul(n.w.t()) + x.pow(2).sum(2, true);
      },
      [](Summed& n, T x) {  // one table for words and logits
        const at::Tensor words = torch::embedding(n.table, (x.sum(2) * 3).to(torch::kLong).clamp(0, 11));
        return torch::linear(words + n.a(torch::ones({4, 6})), n.table);
      }};
  for (size_t i = 0; i < right.size() + refused.size(); ++i) {
    SCOPED_TRACE(i);
    torch::manual_seed(1);
    Summed net(i < right.size() ? right[i] : refused[i - right.size()]);
    const Captured module = capture(net, {torch::randn({2, 4, 6})});
    const prune::Groups groups = prune::groups(module->graph());
    const bool wider = expect_same_when_wider(*module, {torch::randn({3, 4, 6})});
    if (i < right.size()) EXPECT_TRUE(wider);
    if (i < right.size()) continue;
    std::vector<std::vector<int64_t>> units(groups.groups.size());
    std::string errors;
    for (size_t g = 0; g < units.size(); ++g) {
      if (groups.groups[g].not_copied.empty()) continue;
      units.assign(units.size(), {});
      units[g] = {0};
      errors += error_of([&] { prune::insert_units(*module, groups, units); });
    }
    EXPECT_SAYS(errors, "expected units that can be copied, got those of '");
    EXPECT_SAYS(errors, "sums over them");
  }
}

/// The position of a class token, which is added to the token before both stand in a text.
TEST(InsertUnits, SingleUnitsThatMayBeRepeatedAreRefused) {
  Summed net([](Summed& n, const at::Tensor& x) { return n.c(x) * x.slice(2, 0, 1); });
  const Captured module = capture(net, {torch::randn({2, 4, 6})});
  const prune::Groups groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 2u);
  EXPECT_SAYS(error_of([&] {
                prune::insert_units(*module, groups, {{0}, {}});
              }),
              "got those of 'a': it is a single one in 'slice'");
  EXPECT_TRUE(expect_same_when_wider(*module, {torch::randn({3, 4, 6})}));
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
