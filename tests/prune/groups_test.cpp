// What is cut together, op by op: small modules whose groups can be counted by hand.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "error_of.h"

namespace ulp::test {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// A module with a forward of any kind.
struct GroupsNet : nn::Module {
  std::function<Tensor(const Tensor&)> body;
  Tensor forward(const Tensor& x) { return body(x); }
  template <typename Holder>
  Holder add(const std::string& name, Holder layer) {
    return register_module(name, layer);
  }
  nn::Linear linear(const std::string& name, int64_t in, int64_t out) {
    return register_module(name, nn::Linear(in, out));
  }
  nn::Conv2d conv(const std::string& name, int64_t in, int64_t out, int64_t kernel = 1, int64_t groups = 1) {
    return register_module(name,
                           nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2).groups(groups)));
  }
};

/// Captures in double, and proves cuts of a third and of all but one unit of each group.
prune::Groups proved(GroupsNet& net, const Tensor& example, const prune::GroupOptions& options = {}) {
  torch::manual_seed(2);
  net.to(torch::kDouble);
  const Captured module = capture(net, {example.is_floating_point() ? example.to(torch::kDouble) : example});
  const prune::Groups groups = prune::groups(module->graph(), options);
  SCOPED_TRACE(words(groups));
  const bool floats = example.is_floating_point();
  const auto more = [&](int64_t batch) {
    auto sizes = example.sizes().vec();
    sizes[0] = batch;
    return std::vector{floats ? torch::randn(sizes, torch::kDouble)
                              : example.narrow(0, 0, 1).expand(sizes).contiguous()};
  };
  for (const double share : {0.3, 1.0})
    expect_cut_is_masked(module, {more(2), more(3)}, groups, some_units(groups, share, 5), 1e-9,
                         options.inexact == false);
  return groups;
}

/// Indices of one unit in a dimension of a tensor; empty where the unit's group has none.
std::vector<int64_t> indices_of(const prune::Groups& groups, const std::string& tensor, int64_t dim,
                                size_t unit) {
  const prune::Group* group = group_with(groups, tensor, dim);
  if (!group) return {};
  for (const prune::Member& member : group->members) {
    if (member.tensor == tensor && member.dim == dim) return member.indices.at(unit);
  }
  return {};
}

using Indices = std::vector<int64_t>;

std::string obstacle_of(const prune::Groups& groups, const std::string& layer) {
  for (const prune::Obstacle& obstacle : groups.obstacles) {
    if (obstacle.layer == layer) return obstacle.reason;
  }
  return "";
}

TEST(Groups, TheSeedsNetworkHas1044WeightsANeuron) {
  GroupsNet net;
  auto a = net.add("a", nn::Linear(nn::LinearOptions(1024, 100).bias(false)));
  auto b = net.add("b", nn::Linear(nn::LinearOptions(100, 20).bias(false)));
  net.body = [&](const Tensor& x) { return b(torch::relu(a(x))); };
  const Captured module = capture(net, {torch::randn({2, 1024})});
  int64_t all = 0;
  for (const Tensor& p : module->parameters()) all += p.numel();
  EXPECT_EQ(all, 104'400);
  const prune::Groups groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].units, 100);
  EXPECT_EQ(groups.groups[0].producers, std::vector<std::string>{"a"});
  EXPECT_EQ(groups.groups[0].consumers, std::vector<std::string>{"b"});
  const prune::RemovalResult cut = prune::remove_units(*module, groups, {{{42}}});
  int64_t left = 0;
  for (const Tensor& p : cut.module->parameters()) left += p.numel();
  EXPECT_EQ(all - left, 1'044);
  EXPECT_EQ(cut.kept.at("b.weight")[1].size(), 99u);
  EXPECT_EQ(cut.kept.at("b.weight")[1][42], 43);
  EXPECT_EQ(obstacle_of(groups, "b"), "a result of the model keeps its channels");
}

TEST(Groups, AResidualStreamJoinsItsLayers) {
  GroupsNet net;
  auto a = net.conv("a", 3, 6, 3), b = net.conv("b", 6, 6, 3), c = net.conv("c", 6, 2);
  auto norm = net.add("norm", nn::BatchNorm2d(6));
  net.body = [&](const Tensor& x) {
    const Tensor y = a(x);
    return c(torch::relu(norm(b(y)) + y));
  };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].units, 6);
  EXPECT_EQ(groups.groups[0].producers, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(groups.groups[0].consumers, (std::vector<std::string>{"b", "c"}));
  std::map<prune::Role, int> roles;
  for (const prune::Member& member : groups.groups[0].members) ++roles[member.role];
  EXPECT_EQ(roles[prune::Role::row], 4);  // two weights, two biases
  EXPECT_EQ(roles[prune::Role::column], 2);
  EXPECT_EQ(roles[prune::Role::scale], 1);
  EXPECT_EQ(roles[prune::Role::shift], 1);
  EXPECT_EQ(roles[prune::Role::statistic], 2);
}

TEST(Groups, ASizeOfOneJoinsNothing) {
  GroupsNet net;
  auto a = net.conv("a", 3, 4), one = net.conv("one", 3, 1), c = net.conv("c", 4, 2);
  net.body = [&](const Tensor& x) { return c(a(x) * torch::sigmoid(one(x))); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].producers, std::vector<std::string>{"a"});
  EXPECT_EQ(obstacle_of(groups, "one"), "it is a single one");
}

TEST(Groups, CatIsAnOffsetAndItsPiecesAreCutApart) {
  GroupsNet net;
  auto a = net.conv("a", 3, 4), b = net.conv("b", 3, 5), c = net.conv("c", 9, 2);
  net.body = [&](const Tensor& x) { return c(torch::cat({a(x), b(x)}, 1)); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 2u);
  EXPECT_EQ(indices_of(groups, "a.weight", 0, 3), Indices{3});
  // Both groups have columns of c: the first has 0 to 3, the second 4 to 8.
  const prune::Group* of_b = group_with(groups, "b.weight", 0);
  ASSERT_NE(of_b, nullptr);
  EXPECT_EQ(of_b->units, 5);
  for (const prune::Member& member : of_b->members) {
    if (member.tensor != "c.weight") continue;
    EXPECT_EQ(member.indices[2], Indices{6});
  }
}

TEST(Groups, SplitsGetOtherSizes) {
  for (const int kind : {0, 1, 2}) {
    GroupsNet net;
    auto a = net.conv("a", 3, 8), b = net.conv("b", 4, 2), c = net.conv("c", 4, 2);
    net.body = [&](const Tensor& x) {
      const Tensor y = a(x);
      const auto parts = kind == 0   ? y.chunk(2, 1)
                         : kind == 1 ? y.split(4, 1)
                                     : y.split_with_sizes({4, 4}, 1);
      return b(parts[0]) + c(parts[1]);
    };
    const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
    EXPECT_EQ(groups.groups.size(), 2u) << words(groups);
  }
}

TEST(Groups, SliceNarrowAndSelectFollowTheirPositions) {
  GroupsNet net;
  auto a = net.linear("a", 5, 10), b = net.linear("b", 3, 2), c = net.linear("c", 4, 2);
  net.body = [&](const Tensor& x) {
    const Tensor y = torch::relu(a(x));
    return b(y.slice(1, 2, 5)) + c(y.narrow(1, 5, 4)) * y.select(1, 9).unsqueeze(1);
  };
  const auto groups = proved(net, torch::randn({2, 5}));
  const prune::Group* of_b = group_with(groups, "b.weight", 1);
  ASSERT_NE(of_b, nullptr);
  EXPECT_EQ(of_b->units, 3);
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 0), Indices{0});
  ASSERT_NE(group_with(groups, "c.weight", 1), nullptr);
  EXPECT_EQ(group_with(groups, "c.weight", 1)->units, 4);
  // Positions 0 and 1 are read by nobody: a group of their own. Position 9 stays.
  EXPECT_EQ(groups.groups.size(), 3u) << words(groups);
}

TEST(Groups, FlattenGivesAChannelAllItsPlaces) {
  GroupsNet net;
  auto a = net.conv("a", 3, 4, 3);
  auto b = net.linear("b", 4 * 9, 2);
  net.body = [&](const Tensor& x) { return b(a(x).flatten(1)); };
  auto groups = proved(net, torch::randn({2, 3, 3, 3}));
  Indices places;
  for (int64_t i = 0; i < 9; ++i) places.push_back(18 + i);
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 2), places);
  net.body = [&](const Tensor& x) { return b(a(x).view({-1, 36})); };
  groups = proved(net, torch::randn({2, 3, 3, 3}));
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 2), places);
  // With the channels last, a unit has every fourth place.
  net.body = [&](const Tensor& x) { return b(a(x).permute({0, 2, 3, 1}).reshape({x.size(0), 36})); };
  groups = proved(net, torch::randn({2, 3, 3, 3}));
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 2), (Indices{2, 6, 10, 14, 18, 22, 26, 30, 34}));
}

TEST(Groups, DepthwiseFollowsItsInputAndItsGroupsAreRewritten) {
  GroupsNet net;
  auto a = net.conv("a", 3, 6), d = net.conv("d", 6, 12, 3, 6), c = net.conv("c", 12, 2);
  net.body = [&](const Tensor& x) { return c(d(a(x))); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].units, 6);
  EXPECT_EQ(indices_of(groups, "d.weight", 0, 4), (Indices{8, 9}));
  EXPECT_EQ(indices_of(groups, "c.weight", 1, 4), (Indices{8, 9}));
}

TEST(Groups, GroupedConvolutionsLoseWholeGroupsOrTheSameChannelsOfEach) {
  GroupsNet net;
  auto a = net.conv("a", 3, 12), many = net.conv("many", 12, 12, 3, 6), few = net.conv("few", 12, 8, 3, 2),
       c = net.conv("c", 8, 2);
  net.body = [&](const Tensor& x) { return c(few(torch::relu(many(a(x))))); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  // `few` has 2 groups of 6 channels: channel i goes with i + 6, and `many` has them as groups of 2.
  ASSERT_NE(group_with(groups, "few.weight", 0), nullptr);
  EXPECT_EQ(group_with(groups, "few.weight", 0)->units, 4);
  EXPECT_EQ(indices_of(groups, "few.weight", 0, 1), (Indices{1, 5}));
  EXPECT_EQ(indices_of(groups, "c.weight", 1, 1), (Indices{1, 5}));
}

TEST(Groups, ShufflesTieTheSameChannelOfEachGroup) {
  for (const bool op : {false, true}) {
    GroupsNet net;
    auto a = net.conv("a", 3, 12), b = net.conv("b", 12, 2);
    net.body = [&](const Tensor& x) {
      const Tensor y = a(x);
      if (op) return b(torch::channel_shuffle(y, 3));
      return b(y.view({y.size(0), 3, 4, 5, 5}).transpose(1, 2).contiguous().view({y.size(0), 12, 5, 5}));
    };
    const auto groups = proved(net, torch::randn({2, 3, 5, 5}));
    ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
    EXPECT_EQ(groups.groups[0].units, 4);
    EXPECT_EQ(indices_of(groups, "a.weight", 0, 1), (Indices{1, 5, 9}));
    EXPECT_EQ(indices_of(groups, "b.weight", 1, 1), (Indices{3, 4, 5}));
  }
}

TEST(Groups, PixelShuffleTakesBlocksOfChannels) {
  GroupsNet net;
  auto a = net.conv("a", 3, 12), b = net.conv("b", 3, 8), c = net.conv("c", 32, 2);
  net.body = [&](const Tensor& x) { return c(torch::pixel_unshuffle(b(torch::pixel_shuffle(a(x), 2)), 2)); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  EXPECT_EQ(indices_of(groups, "a.weight", 0, 1), (Indices{4, 5, 6, 7}));
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 1), Indices{1});
  EXPECT_EQ(indices_of(groups, "c.weight", 1, 5), (Indices{20, 21, 22, 23}));
}

/// Attention written by hand or by the op, with as many key heads as said.
Tensor attend(const Tensor& x, nn::Linear q, nn::Linear k, nn::Linear v, nn::Linear out, int64_t heads,
              int64_t kv, int spelling) {
  const int64_t n = x.size(0), length = x.size(1), size = 4;
  const auto split = [&](const Tensor& y, int64_t h) { return y.view({n, length, h, size}).transpose(1, 2); };
  Tensor qs = split(q(x), heads), ks = split(k(x), kv), vs = split(v(x), kv);
  Tensor mixed;
  if (spelling == 0) {
    mixed = torch::scaled_dot_product_attention(qs, ks, vs, {}, 0, false, std::nullopt, heads != kv);
  } else {
    if (spelling == 1) {
      ks = ks.repeat_interleave(heads / kv, 1);
      vs = vs.repeat_interleave(heads / kv, 1);
    } else {
      const auto repeated = [&](const Tensor& y) {
        return y.unsqueeze(2).expand({n, kv, heads / kv, length, size}).reshape({n, heads, length, size});
      };
      ks = repeated(ks);
      vs = repeated(vs);
    }
    mixed = torch::matmul(torch::softmax(torch::matmul(qs, ks.transpose(2, 3)) / 2.0, -1), vs);
  }
  return out(mixed.transpose(1, 2).reshape({n, length, heads * size}));
}

TEST(Groups, AttentionLosesHeadsAndQueriesFollowTheirKeyValueHead) {
  for (const int spelling : {0, 1, 2}) {
    for (const int64_t kv : {6, 3}) {
      GroupsNet net;
      auto q = net.linear("q", 5, 24), k = net.linear("k", 5, 4 * kv), v = net.linear("v", 5, 4 * kv),
           out = net.linear("out", 24, 5);
      net.body = [&](const Tensor& x) { return x + attend(x, q, k, v, out, 6, kv, spelling); };
      const auto groups = proved(net, torch::randn({2, 7, 5}));
      ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
      EXPECT_EQ(groups.groups[0].units, kv) << spelling;
      EXPECT_EQ(indices_of(groups, "k.weight", 0, 1), (Indices{4, 5, 6, 7}));
      const Indices queries = indices_of(groups, "q.weight", 0, 1);
      EXPECT_EQ(queries.size(), static_cast<size_t>(24 / kv));
      EXPECT_EQ(queries.front(), kv == 6 ? 4 : 8);
      EXPECT_EQ(indices_of(groups, "out.weight", 1, 1), queries);
    }
  }
}

TEST(Groups, LibTorchsAttentionModuleLosesHeads) {
  struct Encoder : nn::Module {
    nn::TransformerEncoderLayer layer = register_module(
        "layer",
        nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 4).dim_feedforward(12).dropout(0)));
    Tensor forward(const Tensor& x) { return layer(x.transpose(0, 1)).transpose(0, 1); }
  } net;
  const Captured module = capture(net, {torch::randn({2, 5, 8})});
  module->to(torch::kDouble);
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 2u) << words(groups);
  EXPECT_EQ(groups.groups[0].units, 4);
  EXPECT_EQ(indices_of(groups, "layer.self_attn.in_proj_weight", 0, 1), (Indices{2, 3, 10, 11, 18, 19}));
  EXPECT_EQ(groups.groups[1].units, 12);
  expect_cut_is_masked(module, {{torch::randn({3, 5, 8}, torch::kDouble)}}, groups,
                       some_units(groups, 0.5, 1), 1e-9);
}

TEST(Groups, LayerNormIsFollowedOnRequestAndSaysSo) {
  GroupsNet net;
  auto a = net.linear("a", 5, 8), b = net.linear("b", 8, 3);
  auto norm = net.add("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  net.body = [&](const Tensor& x) { return b(norm(a(x))); };
  EXPECT_EQ(obstacle_of(proved(net, torch::randn({2, 5})), "a"),
            "aten::layer_norm 'layer_norm' keeps its channels: it measures mean and variance over them");
  const Captured module = capture(net, {torch::randn({2, 5}, torch::kDouble)});
  const auto groups = prune::groups(module->graph(), {.inexact = true});
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].notes,
            std::vector<std::string>{"norm: it measures mean and variance over them"});
  const auto small = prune::remove_units(*module, groups, {{{0, 3, 4}}}).module;
  const auto keep = torch::tensor({1, 2, 5, 6, 7});
  const Tensor x = torch::randn({4, 5}, torch::kDouble);
  const Tensor hidden = torch::layer_norm(a(x).index_select(1, keep), {5});
  const Tensor want = torch::linear(hidden, b->weight.index_select(1, keep), b->bias);
  EXPECT_LE((small->forward(x) - want).abs().max().item<double>(), 1e-6);
}

TEST(Groups, GroupNormLosesWholeGroups) {
  GroupsNet net;
  auto a = net.conv("a", 3, 12), b = net.conv("b", 12, 2);
  auto norm = net.add("norm", nn::GroupNorm(4, 12));
  net.body = [&](const Tensor& x) { return b(norm(a(x))); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].units, 4);
  EXPECT_EQ(indices_of(groups, "b.weight", 1, 2), (Indices{6, 7, 8}));
}

TEST(Groups, LstmUnitsAreRowsOfAllGates) {
  struct Net : nn::Module {
    nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(4, 6).batch_first(true)));
    nn::Linear out = register_module("out", nn::Linear(6, 3));
    Tensor forward(const Tensor& x) { return out(std::get<0>(lstm(x))); }
  } net;
  const Captured module = capture(net, {torch::randn({2, 5, 4})});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  EXPECT_EQ(groups.groups[0].units, 6);
  EXPECT_EQ(indices_of(groups, "lstm.weight_ih_l0", 0, 2), (Indices{2, 8, 14, 20}));
  EXPECT_EQ(indices_of(groups, "lstm.weight_hh_l0", 0, 2), (Indices{2, 8, 14, 20}));
  EXPECT_EQ(indices_of(groups, "lstm.weight_hh_l0", 1, 2), Indices{2});
  EXPECT_EQ(indices_of(groups, "lstm.bias_hh_l0", 0, 2), (Indices{2, 8, 14, 20}));
  EXPECT_EQ(indices_of(groups, "out.weight", 1, 2), Indices{2});
  expect_cut_is_masked(module, {{torch::randn({3, 5, 4})}}, groups, some_units(groups, 0.5, 1), 1e-5);
}

TEST(Groups, GruOfTwoLayersAndDirectionsSharesItsUnits) {
  struct Net : nn::Module {
    nn::GRU gru = register_module("gru", nn::GRU(nn::GRUOptions(4, 6).num_layers(2).bidirectional(true)));
    nn::Linear out = register_module("out", nn::Linear(12, 3));
    Tensor forward(const Tensor& x) { return out(std::get<0>(gru(x.transpose(0, 1)))).transpose(0, 1); }
  } net;
  const Captured module = capture(net, {torch::randn({2, 5, 4})});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  EXPECT_EQ(groups.groups[0].units, 6);
  EXPECT_EQ(indices_of(groups, "out.weight", 1, 2), (Indices{2, 8}));
  EXPECT_EQ(indices_of(groups, "gru.weight_ih_l1_reverse", 1, 2), (Indices{2, 8}));
  expect_cut_is_masked(module, {{torch::randn({3, 5, 4})}}, groups, some_units(groups, 0.5, 1), 1e-5);
}

TEST(Groups, EmbeddingsLoseColumnsAndTiedWeightsAllTheirUses) {
  GroupsNet net;
  auto table = net.add("table", nn::Embedding(11, 6));
  auto a = net.linear("a", 6, 6);
  net.body = [&](const Tensor& x) {
    return torch::linear(table(x) + torch::tanh(a(table(x))), table->weight);
  };
  const auto groups = proved(net, torch::randint(0, 11, {2, 5}));
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  EXPECT_EQ(groups.groups[0].units, 6);
  EXPECT_NE(group_with(groups, "table.weight", 1), nullptr);
  EXPECT_EQ(group_with(groups, "table.weight", 0), nullptr);
  EXPECT_NE(group_with(groups, "a.weight", 0), nullptr);
  EXPECT_NE(group_with(groups, "a.weight", 1), nullptr);
}

TEST(Groups, AnOpWithoutARuleStopsTheCutAndIsNamed) {
  GroupsNet net;
  auto a = net.conv("a", 3, 8), b = net.conv("b", 8, 6), c = net.conv("c", 6, 2);
  net.body = [&](const Tensor& x) { return c(torch::relu(b(torch::renorm(a(x), 2, 0, 100)))); };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  EXPECT_EQ(obstacle_of(groups, "a"), "aten::renorm 'renorm' keeps its channels");
  ASSERT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].name(), "b");
}

TEST(Groups, MeansOverChannelsAndSumsOfWhatIsNotZeroStay) {
  GroupsNet net;
  auto a = net.conv("a", 3, 8), b = net.conv("b", 3, 8), c = net.conv("c", 3, 8);
  net.body = [&](const Tensor& x) {
    return torch::relu(a(x)).sum(1) + torch::sigmoid(b(x)).sum(1) + torch::relu(c(x)).mean(1);
  };
  const auto groups = proved(net, torch::randn({2, 3, 4, 4}));
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  EXPECT_EQ(groups.groups[0].name(), "a");
  EXPECT_SAYS(obstacle_of(groups, "b"), "keeps its channels: it sums over them");
  EXPECT_SAYS(obstacle_of(groups, "c"),
              "aten::mean.dim 'mean' keeps its channels: it takes the mean over them");
}

TEST(Groups, FreeDimensionsStayFree) {
  GroupsNet net;
  auto q = net.linear("q", 5, 24), k = net.linear("k", 5, 12), v = net.linear("v", 5, 12),
       out = net.linear("out", 24, 5);
  net.body = [&](const Tensor& x) { return attend(x, q, k, v, out, 6, 3, 2); };
  const Captured module = capture(net, {torch::randn({2, 7, 5})}, {.free = {{0, 1, "time", 12}}});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  EXPECT_EQ(groups.groups[0].units, 3);
  expect_cut_is_masked(module,
                       {{torch::randn({3, 7, 5})}, {torch::randn({1, 12, 5})}, {torch::randn({4, 2, 5})}},
                       groups, some_units(groups, 0.3, 1), 1e-5);
}

}  // namespace
}  // namespace ulp::test
