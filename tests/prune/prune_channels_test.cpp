// Channels cut in one call: the four calls that it stands for, the zeroed network, what it says, and what it refuses.
#include "ulp/prune/structured/prune_channels.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/prune/structured/activation_importance.h"

namespace ulp::test {
namespace {

using prune::ChannelOptions;
using prune::Criterion;
using prune::PrunedChannels;
using torch::Tensor;
namespace nn = torch::nn;

nn::Conv2d channel_conv(int64_t in, int64_t out, int64_t kernel, int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2).groups(groups));
}

/// A residual sum, a depthwise convolution behind it, two branches that are concatenated, and two heads.
struct BranchesNet : nn::Module {
  nn::Conv2d stem = register_module("stem", channel_conv(3, 10, 3));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(10));
  nn::Conv2d body = register_module("body", channel_conv(10, 10, 3));
  nn::Conv2d deep = register_module("deep", channel_conv(10, 10, 3, 10));
  nn::Conv2d left = register_module("left", channel_conv(10, 8, 1));
  nn::Conv2d right = register_module("right", channel_conv(10, 6, 1));
  nn::Linear scores = register_module("scores", nn::Linear(14, 4));
  nn::Linear box = register_module("box", nn::Linear(14, 2));
  std::tuple<Tensor, Tensor> forward(const Tensor& x) {
    Tensor y = torch::relu(norm(stem(x)));
    y = torch::relu(deep(y + body(y)));
    const Tensor z = torch::cat({torch::relu(left(y)), torch::tanh(right(y))}, 1).mean({2, 3});
    return {scores(z), box(z)};
  }
};

/// Attention of four heads with a residual sum.
struct HeadsNet : nn::Module {
  nn::Linear q = register_module("q", nn::Linear(8, 16)), k = register_module("k", nn::Linear(8, 16)),
             v = register_module("v", nn::Linear(8, 16)), out = register_module("out", nn::Linear(16, 8)),
             up = register_module("up", nn::Linear(8, 20)), down = register_module("down", nn::Linear(20, 8));
  Tensor forward(const Tensor& x) {
    const auto heads = [&](const Tensor& y) { return y.view({x.size(0), 5, 4, 4}).transpose(1, 2); };
    const Tensor mixed = torch::scaled_dot_product_attention(heads(q(x)), heads(k(x)), heads(v(x)));
    const Tensor y = x + out(mixed.transpose(1, 2).reshape({x.size(0), 5, 16}));
    return y + down(torch::gelu(up(y)));
  }
};

template <typename Net>
Captured in_double(const Tensor& example) {
  torch::manual_seed(5);
  Net net;
  net.to(torch::kDouble);
  return capture(net, {example.to(torch::kDouble)});
}

Captured branches() {
  return in_double<BranchesNet>(torch::randn({2, 3, 6, 6}));
}
Captured heads() {
  return in_double<HeadsNet>(torch::randn({2, 5, 8}));
}

/// The tensors of a graph, so that a change can be seen.
std::map<std::string, Tensor> stored(const graph::GraphModule& module) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, attribute] : module.graph().attributes())
    copies[name] = attribute.tensor.detach().clone();
  return copies;
}

void expect_stored(const graph::GraphModule& module, const std::map<std::string, Tensor>& want) {
  ASSERT_EQ(module.graph().attributes().size(), want.size());
  for (const auto& [name, attribute] : module.graph().attributes())
    EXPECT_TRUE(torch::equal(attribute.tensor, want.at(name))) << name;
}

std::string text_of(const graph::GraphModule& module) {
  std::ostringstream out;
  out << module.graph();
  return out.str();
}

/// One call gives what four do, to the bit.
void expect_four_calls(const Captured& module, const ChannelOptions& options) {
  const PrunedChannels one = prune::prune_channels(*module, options);
  const prune::Groups groups = prune::groups(module->graph());
  const prune::Importance scores =
      prune::importance(*module, groups, {.criterion = options.criterion, .seed = options.seed});
  const prune::Removals removals =
      prune::select_units(groups, scores, {.amount = options.share, .round_to = options.multiple});
  const prune::RemovalResult four = prune::remove_units(*module, groups, removals);
  EXPECT_EQ(one.removals.units, removals.units);
  EXPECT_EQ(one.kept, four.kept);
  expect_stored(*one.module, stored(*four.module));
}

TEST(PruneChannels, IsTheFourCallsToTheBit) {
  for (const Captured& module : {branches(), heads()}) {
    expect_four_calls(module, {.share = 0.3});
    expect_four_calls(module, {.share = 0.9, .criterion = Criterion::group});
    expect_four_calls(module, {.share = 0.5, .criterion = Criterion::random, .seed = 8});
    expect_four_calls(module, {.share = 0.4, .multiple = 4});
  }
}

TEST(PruneChannels, TheCutNetworkIsTheZeroedOne) {
  const Captured images = branches(), tokens = heads();
  const PrunedChannels a = prune::prune_channels(*images, {.share = 0.3});
  expect_cut_is_masked(images, {{torch::randn({3, 3, 6, 6}, torch::kDouble)}}, a.groups, a.removals, 1e-9);
  const PrunedChannels b = prune::prune_channels(*tokens, {.share = 0.3});
  expect_cut_is_masked(tokens, {{torch::randn({3, 5, 8}, torch::kDouble)}}, b.groups, b.removals, 1e-9);
  const Captured zeroed = masked(*tokens, b.groups, b.removals);
  zeroed->eval();
  b.module->eval();
  const Tensor x = torch::randn({1, 5, 8}, torch::kDouble);
  EXPECT_LE((b.module->forward(x) - zeroed->forward(x)).abs().max().item<double>(), 1e-12);
}

TEST(PruneChannels, SaysWhatWasCut) {
  const Captured module = branches();
  const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0.3});
  std::map<std::string, std::pair<int64_t, int64_t>> units;
  for (const prune::GroupRemoval& group : pruned.cut) units[group.name] = {group.before, group.after};
  const std::map<std::string, std::pair<int64_t, int64_t>> want = {
      {"stem", {10, 7}}, {"left", {8, 6}}, {"right", {6, 4}}};
  EXPECT_EQ(units, want);
  int64_t before = 0, after = 0;
  for (const Tensor& parameter : module->parameters()) before += parameter.numel();
  for (const Tensor& parameter : pruned.module->parameters()) after += parameter.numel();
  EXPECT_EQ(pruned.before.parameters, before);
  EXPECT_EQ(pruned.after.parameters, after);
  const auto macs = [](int64_t stream, int64_t left, int64_t right) {
    return 36 * (27 * stream + 9 * stream * stream + 9 * stream + stream * (left + right)) +
           6 * (left + right);
  };
  EXPECT_EQ(pruned.before.macs, macs(10, 8, 6));
  EXPECT_EQ(pruned.after.macs, macs(7, 6, 4));
  std::ostringstream text;
  text << pruned;
  EXPECT_SAYS(text.str(), "left: 8 -> 6 units\n");
  EXPECT_SAYS(text.str(), "MACs: " + std::to_string(pruned.before.macs) + " -> ");
  EXPECT_SAYS(text.str(), "not cut: scores: a result of the model keeps its channels\n");
}

TEST(PruneChannels, CutsWhatScoresLeast) {
  const Captured module = branches();
  Tensor weight = module->named_parameters()["left.weight"];
  {
    const torch::NoGradGuard no_grad;
    for (const int64_t unit : {2, 5}) weight[unit].mul_(1e-3);
  }
  const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0.25});
  EXPECT_EQ(pruned.kept.at("left.weight")[0], (std::vector<int64_t>{0, 1, 3, 4, 6, 7}));
}

TEST(PruneChannels, KeepsModulesByPath) {
  const Captured module = branches();
  // The norm is scaled with the stem, which the residual sum and the depthwise convolution follow.
  for (const char* path : {"norm", "stem", "bo*y", "deep"}) {
    const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0.5, .keep = {path}});
    EXPECT_EQ(pruned.cut[0].after, 10) << path;
    EXPECT_EQ(pruned.cut[0].whole, std::string("'") + path + "' is in keep");
    EXPECT_EQ(pruned.cut[1].after, 4) << path;
    EXPECT_EQ(pruned.cut[1].whole, "");
  }
  // A head reads the branches: its own channels are the model's results, and the branches may still be cut.
  EXPECT_EQ(prune::prune_channels(*module, {.share = 0.5, .keep = {"scores"}}).cut[1].after, 4);
}

TEST(PruneChannels, NamesOfModulesWithoutChannelsAreNoneToKeep) {
  nn::Sequential net(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 3));
  const Captured module = capture(net, {torch::randn({2, 4})});
  EXPECT_ERROR(prune::prune_channels(*module, {.keep = {"1"}}),
               "expected paths of modules of the graph in keep, got '1'");
}

/// What forward reads of a buffer of channels is held, and cut with it.
TEST(PruneChannels, NumbersThatForwardFollowsAreCutWithTheirBuffer) {
  struct Gained : nn::Module {
    nn::Linear up = register_module("up", nn::Linear(4, 8)), down = register_module("down", nn::Linear(8, 3));
    Tensor gain = register_buffer("gain", torch::arange(8).to(torch::kFloat));
    Tensor forward(const Tensor& x) {
      const Tensor y = up(x);
      return down(gain.any().item<bool>() ? y * gain : y);
    }
  } net;
  const Captured module = capture(net, {torch::randn({2, 4})});
  const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0.5});
  EXPECT_EQ(pruned.module->forward(torch::randn({3, 4})).sizes(), (std::vector<int64_t>{3, 3}));
  net.gain.zero_();
  EXPECT_ERROR(prune::prune_channels(*module, {.share = 0.5}), "[prune.cut] expected 'gain' to hold");
}

TEST(PruneChannels, RoundsWhatIsKeptUp) {
  const Captured module = branches();
  const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0.7, .multiple = 4});
  for (const auto& [name, want] : {std::pair("stem", 4), {"left", 4}, {"right", 4}}) {
    const auto found = std::ranges::find(pruned.cut, name, &prune::GroupRemoval::name);
    ASSERT_NE(found, pruned.cut.end());
    EXPECT_EQ(found->after, want) << name;
  }
}

TEST(PruneChannels, ScoresByActivationsAndLosses) {
  const Captured module = branches();
  const std::vector<std::vector<Tensor>> batches{{torch::randn({4, 3, 6, 6}, torch::kDouble)}};
  const auto removed = [&](ChannelOptions options) {
    options.share = 0.4;
    return prune::prune_channels(*module, options).removals.units;
  };
  const prune::Groups groups = prune::groups(module->graph());
  const auto by = [&](const prune::Importance& scores) {
    return prune::select_units(groups, scores, {.amount = 0.4}).units;
  };
  for (const auto& [criterion, score] : {std::pair(Criterion::apoz, prune::ActivationScore::apoz),
                                         {Criterion::activation, prune::ActivationScore::mean},
                                         {Criterion::rank, prune::ActivationScore::rank}}) {
    EXPECT_EQ(removed({.criterion = criterion, .batches = batches}),
              by(prune::activation_importance(*module, groups, score, batches)));
  }
  const prune::ShapleyLoss loss = [](const std::vector<Tensor>& results, int64_t) {
    return results[0].square().mean().item<double>();
  };
  const prune::ShapleyOptions twice{.permutations = 2, .seed = 3};
  EXPECT_EQ(removed({.criterion = Criterion::shapley, .batches = batches, .loss = loss, .shapley = twice}),
            by(prune::shapley_values(*module, groups, batches, loss, twice).values));
}

TEST(PruneChannels, LeavesTheModuleAsItWasWhateverHappens) {
  const Captured module = branches();
  const auto want = stored(*module);
  const std::string graph = text_of(*module);
  const auto refused = [&](const ChannelOptions& options, const std::string& text) {
    EXPECT_ERROR(prune::prune_channels(*module, options), "[prune.prune_channels] expected " + text);
    expect_stored(*module, want);
    EXPECT_EQ(text_of(*module), graph);
    EXPECT_TRUE(module->is_training());
  };
  refused({.share = 1}, "share in [0, 1), got 1");
  refused({.share = -0.1}, "share in [0, 1), got -0.1");
  refused({.share = std::nan("")}, "share in [0, 1), got nan");
  refused({.multiple = 0}, "multiple of at least 1, got 0");
  refused({.keep = {"stem", "lefd"}},
          "paths of modules of the graph in keep, got 'lefd'; the nearest are left");
  refused({.keep = {""}}, "paths of modules of the graph in keep, got ''");
  refused({.keep = {"*"}},
          "a network with channels, heads or neurons that may be cut, got none: "
          "'stem': '*' is in keep; 'left': '*' is in keep");
  refused({.criterion = Criterion::apoz}, "batches for the criterion apoz, got none");
  refused({.criterion = Criterion::shapley, .batches = {{torch::randn({1, 3, 6, 6}, torch::kDouble)}}},
          "a loss for the criterion shapley, got none");
  EXPECT_ERROR(prune::prune_channels(*module, {.criterion = Criterion::taylor}), "expected a gradient of '");
  prune::prune_channels(*module, {.share = 0.5});
  expect_stored(*module, want);
  EXPECT_EQ(text_of(*module), graph);
}

TEST(PruneChannels, RefusesWhatHasNothingToCut) {
  nn::Linear only(4, 3);
  const Captured module = capture(only, {torch::randn({2, 4})});
  EXPECT_ERROR(prune::prune_channels(*module, {.share = 0.3}),
               "expected a network with channels, heads or neurons that may be cut, got none: ");
  EXPECT_ERROR(prune::prune_channels(*module), "a result of the model keeps its channels");
  nn::Sequential narrow(nn::Linear(4, 1), nn::ReLU(), nn::Linear(1, 3));
  const Captured single = capture(narrow, {torch::randn({2, 4})});
  EXPECT_ERROR(prune::prune_channels(*single, {.share = 0.3}), "it is a single one");
  const Captured heads_without_norms = heads();
  EXPECT_ERROR(prune::prune_channels(*heads_without_norms, {.criterion = Criterion::scale}),
               "the criterion scale says nothing of it");
}

TEST(PruneChannels, AShareThatRoundsToNothingCutsNothing) {
  const Captured module = branches();
  const PrunedChannels pruned = prune::prune_channels(*module, {.share = 0});
  expect_stored(*pruned.module, stored(*module));
  EXPECT_EQ(pruned.before.parameters, pruned.after.parameters);
}

}  // namespace
}  // namespace ulp::test
