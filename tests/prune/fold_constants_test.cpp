// What removed channels leave behind a norm.
#include "ulp/prune/structured/fold_constants.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "cut_networks.h"
#include "random_channels.h"

namespace ulp::test {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct FoldNet : nn::Module {
  explicit FoldNet(int64_t kernel, int64_t padding, bool bias)
      : conv2(register_module("conv2",
                              nn::Conv2d(nn::Conv2dOptions(6, 5, kernel).padding(padding).bias(bias)))) {
    const torch::NoGradGuard no_grad;
    for (auto* bn : {&bn1, &bn2}) {
      (*bn)->bias.normal_();
      (*bn)->running_mean.normal_();
      (*bn)->running_var.uniform_(0.5, 2);
    }
  }
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(3, 6, 3));
  nn::BatchNorm2d bn1 = register_module("bn1", nn::BatchNorm2d(6));
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2 = register_module("bn2", nn::BatchNorm2d(5));
  nn::Linear fc = register_module("fc", nn::Linear(20, 4));
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::max_pool2d(torch::hardswish(bn1(conv1(x)) + 0.5), 2);
    return fc(torch::adaptive_avg_pool2d(torch::sigmoid(bn2(conv2(y))), {2, 2}).flatten(1));
  }
};

/// The network with the rows of the units zeroed, their norms as they are.
Captured without_rows(const graph::GraphModule& module, const prune::Groups& groups,
                      const prune::Removals& removals) {
  const Captured copy = prune::remove_units(module, groups, no_units(groups)).module;
  const torch::NoGradGuard no_grad;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    for (const prune::Member& member : groups.groups[g].members) {
      if (member.role != prune::Role::row) continue;
      for (const int64_t unit : removals.units[g]) {
        for (const int64_t index : member.indices[unit])
          copy->graph().find_attribute(member.tensor)->tensor.detach().select(member.dim, index).zero_();
      }
    }
  }
  return copy;
}

prune::FoldReport expect_folds(FoldNet& net, bool exact) {
  net.to(torch::kDouble);
  net.eval();
  const Captured module = capture(net, {torch::randn({2, 3, 12, 12}, torch::kDouble)});
  module->eval();
  const auto groups = prune::groups(module->graph());
  EXPECT_EQ(groups.groups.size(), 2u) << words(groups);
  const prune::Removals removals{{{1, 4}, {0, 3}}};
  const Tensor x = torch::randn({3, 3, 12, 12}, torch::kDouble);
  const Tensor want = without_rows(*module, groups, removals)->forward(x),
               dropped = prune::remove_units(*module, groups, removals).module->forward(x);
  const Captured folded = prune::remove_units(*module, groups, no_units(groups)).module;
  folded->eval();
  const prune::FoldReport report = prune::fold_constants(*folded, groups, removals);
  const Tensor got = prune::remove_units(*folded, groups, removals).module->forward(x);
  EXPECT_GT((want - dropped).abs().max().item<double>(), 1e-3);
  if (exact) {
    EXPECT_LE((want - got).abs().max().item<double>(), 1e-12);
  } else {
    EXPECT_GT((want - got).abs().max().item<double>(), 1e-6);
  }
  return report;
}

TEST(FoldConstants, IsExactWithoutZeroPadding) {
  torch::manual_seed(8);
  for (const bool bias : {true, false}) {
    for (const int64_t kernel : {1, 3}) {
      FoldNet net(kernel, 0, bias);
      const auto report = expect_folds(net, true);
      EXPECT_EQ(report.folded, (std::vector<std::string>{"conv2: 2 channels", "fc: 8 channels"}));
      EXPECT_TRUE(report.not_folded.empty());
    }
  }
}

TEST(FoldConstants, NamesWhatPaddingLoses) {
  torch::manual_seed(8);
  FoldNet net(3, 1, true);
  const auto report = expect_folds(net, false);
  EXPECT_EQ(report.folded, std::vector<std::string>{"fc: 8 channels"});
  EXPECT_EQ(report.not_folded,
            std::vector<std::string>{"conv2: 2 channels: its zero padding knows no constant"});
}

/// A network whose forward is written where its layers are.
struct FoldWires : nn::Module {
  std::function<Tensor(const Tensor&)> wires;
  Tensor forward(const Tensor& x) { return wires(x); }

  template <typename Holder>
  Holder add(const std::string& name, Holder layer) {
    register_module(name, layer);
    return layer;
  }
  nn::Conv2d conv(const std::string& name, int64_t in, int64_t out, int64_t groups = 1, bool bias = true) {
    return add(name, nn::Conv2d(nn::Conv2dOptions(in, out, 1).groups(groups).bias(bias)));
  }
  nn::Linear linear(const std::string& name, int64_t in, int64_t out, bool bias = true) {
    return add(name, nn::Linear(nn::LinearOptions(in, out).bias(bias)));
  }
  Tensor parameter(const std::string& name, at::IntArrayRef sizes) {
    return register_parameter(name, torch::randn(sizes));
  }
  /// A convolution with a norm, behind which zeroed channels are some other number.
  std::function<Tensor(const Tensor&)> unit(const std::string& name, int64_t in, int64_t out) {
    auto made = conv(name, in, out);
    auto norm = add(name + "_norm", nn::BatchNorm2d(out));
    const torch::NoGradGuard no_grad;
    norm->weight.uniform_(0.5, 1.5);
    norm->bias.uniform_(0.5, 1.5);
    norm->running_mean.uniform_(-1, 0);
    norm->running_var.uniform_(0.5, 2);
    return [made, norm](const Tensor& x) mutable { return torch::relu(norm(made(x))); };
  }
};

/// What a fold made of a network of which every third unit goes.
struct FoldOutcome {
  Tensor want, got, dropped;  ///< with the rows zeroed, folded and cut, only cut
  prune::FoldReport report;
  std::vector<std::string> parameters;  ///< of the folded network
};

FoldOutcome fold_thirds(FoldWires& net, Tensor x, const prune::GroupOptions& options = {}) {
  net.to(torch::kDouble);
  net.eval();
  x = x.to(torch::kDouble);
  const Captured module = capture(net, {x});
  module->eval();
  const auto groups = prune::groups(module->graph(), options);
  prune::Removals removals = no_units(groups);
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    for (int64_t unit = 0; unit < groups.groups[g].units - 1; unit += 3) removals.units[g].push_back(unit);
  }
  FoldOutcome outcome;
  torch::manual_seed(11);
  outcome.want = without_rows(*module, groups, removals)->forward(x);
  torch::manual_seed(11);
  outcome.dropped = prune::remove_units(*module, groups, removals).module->forward(x);
  const Captured folded = prune::remove_units(*module, groups, no_units(groups)).module;
  folded->eval();
  outcome.report = prune::fold_constants(*folded, groups, removals);
  for (const auto& item : folded->named_parameters()) outcome.parameters.push_back(item.key());
  torch::manual_seed(11);
  outcome.got = prune::remove_units(*folded, groups, removals).module->forward(x);
  return outcome;
}

Tensor fold_image() {
  return torch::randn({2, 3, 9, 7});
}

double fold_distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

/// The fold changes the numbers to those wanted, and says so.
void expect_exact_fold(FoldWires& net, const std::vector<std::string>& folded,
                       const Tensor& x = fold_image()) {
  const FoldOutcome outcome = fold_thirds(net, x);
  EXPECT_GT(fold_distance(outcome.want, outcome.dropped), 1e-3);
  EXPECT_LE(fold_distance(outcome.want, outcome.got), 1e-10);
  EXPECT_EQ(outcome.report.folded, folded);
  EXPECT_EQ(outcome.report.not_folded, std::vector<std::string>());
}

/// The fold names what it does not know and changes nothing.
void expect_no_fold(FoldWires& net, const std::vector<std::string>& not_folded,
                    const Tensor& x = fold_image(), const prune::GroupOptions& options = {}) {
  const FoldOutcome outcome = fold_thirds(net, x, options);
  EXPECT_GT(fold_distance(outcome.want, outcome.dropped), 1e-3);
  EXPECT_TRUE(torch::equal(outcome.dropped, outcome.got));
  EXPECT_EQ(outcome.report.folded, std::vector<std::string>());
  EXPECT_EQ(outcome.report.not_folded, not_folded);
}

/// There is nothing to fold.
void expect_nothing_lost(FoldWires& net, const Tensor& x = fold_image()) {
  const FoldOutcome outcome = fold_thirds(net, x);
  EXPECT_LE(fold_distance(outcome.want, outcome.dropped), 1e-10);
  EXPECT_TRUE(torch::equal(outcome.dropped, outcome.got));
  EXPECT_EQ(outcome.report.folded, std::vector<std::string>());
  EXPECT_EQ(outcome.report.not_folded, std::vector<std::string>());
}

constexpr const char* kManyNumbers = "what they hold is not one number each";
constexpr const char* kOtherConstants = "its bias is for calls that read other constants, too";

class FoldWiring : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(5); }
  FoldWires net_;
};

TEST_F(FoldWiring, FoldsWhatLeavesEachGroupOfAConvolution) {
  for (const bool bias : {true, false}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto s = net.conv("s", 12, 4, 2, bias);
    net.wires = [=](const Tensor& x) mutable { return s(a(x)); };
    expect_exact_fold(net, {"s: 4 channels"});
  }
}

TEST_F(FoldWiring, FoldsNothingWhereWholeGroupsGo) {
  auto a = net_.unit("a", 3, 12);
  auto depthwise = net_.conv("depthwise", 12, 12, 12);
  auto pairs = net_.conv("pairs", 12, 12, 6);
  auto s = net_.conv("s", 12, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(pairs(depthwise(a(x)))); };
  expect_nothing_lost(net_);
}

TEST_F(FoldWiring, FoldsBehindADepthwiseConvolutionWithANorm) {
  auto a = net_.unit("a", 3, 12);
  auto depthwise = net_.conv("depthwise", 12, 12, 12);
  auto norm = net_.add("norm", nn::BatchNorm2d(12));
  norm->bias.data().normal_();
  auto s = net_.conv("s", 12, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(norm(depthwise(a(x)))); };
  expect_exact_fold(net_, {"s: 4 channels"});
}

TEST_F(FoldWiring, NamesTransposedConvolutions) {
  for (const int64_t groups : {1, 2}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto s = net.add("s", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(12, 4, 2).groups(groups)));
    net.wires = [=](const Tensor& x) mutable { return s(a(x)); };
    expect_no_fold(net, {"s: 4 channels: aten::conv_transpose2d takes no constants"});
  }
}

TEST_F(FoldWiring, NamesWhatATransposedConvolutionOfWholeGroupsMakesOfConstants) {
  auto a = net_.unit("a", 3, 6);
  auto up = net_.add("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(6, 6, 2).groups(6)));
  auto s = net_.conv("s", 6, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(up(a(x))); };
  expect_no_fold(net_, {std::string("s: 2 channels: ") + kManyNumbers});
}

TEST_F(FoldWiring, NamesRecurrentLayers) {
  auto a = net_.unit("a", 3, 12);
  auto lstm = net_.add("lstm", nn::LSTM(nn::LSTMOptions(12, 4).batch_first(true)));
  net_.wires = [=](const Tensor& x) mutable { return std::get<0>(lstm(a(x).flatten(2).transpose(1, 2))); };
  expect_no_fold(net_, {"lstm: 4 channels: aten::lstm takes no constants"});
}

TEST_F(FoldWiring, KnowsThatRemovedRecurrentUnitsAreZero) {
  auto lstm = net_.add("lstm", nn::LSTM(nn::LSTMOptions(5, 9).num_layers(2).bidirectional(true)));
  auto s = net_.linear("s", 18, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(std::get<0>(lstm(x))); };
  expect_nothing_lost(net_, torch::randn({6, 2, 5}));
}

TEST_F(FoldWiring, KnowsThatRemovedHeadsAreZero) {
  auto q = net_.linear("q", 6, 12), k = net_.linear("k", 6, 12), v = net_.linear("v", 6, 12),
       s = net_.linear("s", 12, 5);
  net_.wires = [=](const Tensor& x) mutable {
    const auto heads = [&](const Tensor& t) { return t.view({x.size(0), 5, 4, 3}).transpose(1, 2); };
    return s(torch::scaled_dot_product_attention(heads(q(x)), heads(k(x)), heads(v(x)))
                 .transpose(1, 2)
                 .flatten(2));
  };
  expect_nothing_lost(net_, torch::randn({2, 5, 6}));
}

TEST_F(FoldWiring, NamesSumsAndMeansOverChannels) {
  {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    net.wires = [=](const Tensor& x) { return a(x).sum(1); };
    expect_no_fold(net, {"sum: 4 channels: aten::sum takes no constants"});
  }
  {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    net.wires = [=](const Tensor& x) { return a(x).mean(1); };
    expect_no_fold(net, {"mean: 4 channels: aten::mean takes no constants"}, fold_image(), {.inexact = true});
  }
}

TEST_F(FoldWiring, NamesNormsOverChannels) {
  auto a = net_.unit("a", 3, 12);
  auto norm = net_.add("norm", nn::LayerNorm(nn::LayerNormOptions({12})));
  auto s = net_.linear("s", 12, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(norm(a(x).mean({2, 3}))); };
  expect_no_fold(net_,
                 {"norm: 4 channels: aten::layer_norm takes no constants",
                  std::string("s: 4 channels: ") + kManyNumbers},
                 fold_image(), {.inexact = true});
}

TEST_F(FoldWiring, NamesProductsOfTwoActivations) {
  auto a = net_.unit("a", 3, 12), b = net_.unit("b", 3, 12);
  net_.wires = [=](const Tensor& x) {
    return torch::matmul(a(x).flatten(2).transpose(1, 2), b(x).flatten(2));
  };
  expect_no_fold(net_, {"matmul: 4 channels: aten::matmul takes no constants"});
}

using FoldUnit = std::function<Tensor(const Tensor&)>;

/// One layer on two branches.
void expect_shared(bool bias, bool exact, const std::vector<std::string>& report,
                   const std::function<FoldUnit(FoldWires&)>& first,
                   const std::function<FoldUnit(FoldWires&)>& second) {
  SCOPED_TRACE(report[0] + (bias ? ", with a bias" : ", without a bias"));
  FoldWires net;
  const FoldUnit a = first(net);
  const FoldUnit b = second ? second(net) : a;
  auto s = net.conv("s", 9, 4, 1, bias);
  net.wires = [=](const Tensor& x) mutable {
    const Tensor y = torch::sigmoid(s(a(x)));
    return y * s(b(x.flip({2})));
  };
  exact ? expect_exact_fold(net, report) : expect_no_fold(net, report);
}

TEST_F(FoldWiring, AddsToASharedLayerOnlyWhatAllItsCallsNeed) {
  const auto constants = [](FoldWires& net) {
    return net.unit("unit" + std::to_string(net.children().size()), 3, 9);
  };
  const auto zeros = [](FoldWires& net) -> FoldUnit {
    return [conv = net.conv("plain", 3, 9)](const Tensor& x) mutable { return conv(x); };
  };
  const auto unknown = [](FoldWires& net) -> FoldUnit {
    return [unit = net.unit("unknown", 3, 9)](const Tensor& x) { return unit(x) * x.mean({1}, true); };
  };
  const std::string other = std::string("s: 3 channels: ") + kOtherConstants,
                    many = std::string("s: 3 channels: ") + kManyNumbers;
  for (const bool bias : {true, false}) {
    expect_shared(bias, false, {other}, constants, zeros);
    expect_shared(bias, false, {other}, zeros, constants);
    expect_shared(bias, false, {other, other}, constants, constants);
    expect_shared(bias, false, {other, many}, constants, unknown);
    expect_shared(bias, false, {many, other}, unknown, constants);
    expect_shared(bias, true, {"s: 3 channels", "s: 3 channels"}, constants, nullptr);
  }
}

/// Two weights, one bias.
TEST_F(FoldWiring, AddsToASharedBiasOnce) {
  for (const bool equal : {false, true}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto bias = net.parameter("bias", {5});
    auto w1 = net.parameter("w1", {5, 12}), w2 = net.parameter("w2", {5, 12});
    if (equal) w2.data().copy_(w1.data());
    net.wires = [=](const Tensor& x) {
      const Tensor y = a(x).mean({2, 3});
      const Tensor z = torch::sigmoid(torch::linear(y, w1, bias));
      return z * torch::linear(y, w2, bias);
    };
    if (equal) {
      expect_exact_fold(net, {"linear: 4 channels", "linear_1: 4 channels"});
    } else {
      expect_no_fold(net, {std::string("linear: 4 channels: ") + kOtherConstants,
                           std::string("linear_1: 4 channels: ") + kOtherConstants});
    }
  }
}

TEST_F(FoldWiring, LeavesABiasThatSomethingElseReads) {
  auto a = net_.unit("a", 3, 12);
  auto s = net_.linear("s", 12, 5);
  net_.wires = [=](const Tensor& x) mutable { return s(a(x).mean({2, 3})) * s->bias; };
  expect_no_fold(net_, {"s: 4 channels: its bias is read elsewhere, too"});
}

TEST_F(FoldWiring, LeavesComputedWeightsAndBiases) {
  auto a = net_.unit("a", 3, 12);
  auto w1 = net_.parameter("w1", {5, 12}), w2 = net_.parameter("w2", {5, 12}),
       bias = net_.parameter("b", {5});
  net_.wires = [=](const Tensor& x) {
    const Tensor y = a(x).mean({2, 3});
    const Tensor z = torch::linear(y, w1, bias * 3);
    return z * torch::linear(y, torch::tanh(w2));
  };
  expect_no_fold(
      net_, {"linear: 4 channels: its bias is computed", "linear_1: 4 channels: its weight is computed"});
}

TEST_F(FoldWiring, FoldsIntoTheMatrixThatAProductAdds) {
  for (const bool turned : {true, false}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto w = turned ? net.parameter("w", {5, 12}) : net.parameter("w", {12, 5});
    auto b = net.parameter("b", {5});
    net.wires = [=](const Tensor& x) { return torch::addmm(b, a(x).mean({2, 3}), turned ? w.t() : w); };
    expect_exact_fold(net, {"addmm: 4 channels"});
  }
  FoldWires net;
  auto a = net.unit("a", 3, 12);
  auto w = net.parameter("w", {12, 5}), b = net.parameter("b", {1});
  net.wires = [=](const Tensor& x) { return torch::addmm(b, a(x).mean({2, 3}), w); };
  expect_no_fold(net, {"addmm: 4 channels: its bias is not one number for each output"});
}

TEST_F(FoldWiring, GivesEachWeightABiasOfItsOwnName) {
  auto a = net_.unit("a", 3, 9);
  auto w1 = net_.parameter("w1", {6, 9, 1, 1}), w2 = net_.parameter("w2", {4, 6, 1, 1});
  auto taken = net_.parameter("w2_bias", {4, 1, 1});
  auto norm = net_.add("norm", nn::BatchNorm2d(6));
  norm->bias.data().normal_();
  net_.wires = [=](const Tensor& x) mutable {
    return torch::conv2d(norm(torch::conv2d(a(x), w1)), w2) * taken;
  };
  expect_exact_fold(net_, {"conv2d_1: 3 channels", "conv2d_2: 2 channels"});
  const FoldOutcome again = fold_thirds(net_, fold_image());
  for (const char* name : {"w1_bias", "w2_bias_2"})
    EXPECT_EQ(std::ranges::count(again.parameters, name), 1) << name;
}

TEST_F(FoldWiring, NamesGatesOfTwoHalves) {
  auto a = net_.unit("a", 3, 12);
  auto s = net_.conv("s", 6, 4);
  net_.wires = [=](const Tensor& x) mutable { return s(torch::glu(a(x), 1)); };
  expect_no_fold(net_, {std::string("s: 2 channels: ") + kManyNumbers});
}

TEST_F(FoldWiring, NamesRandomNumbers) {
  const std::vector<std::function<Tensor(const Tensor&)>> draws{
      [](const Tensor& x) { return torch::rand_like(x); },
      [](const Tensor& x) { return torch::bernoulli(torch::sigmoid(x)); },
      [](const Tensor& x) { return torch::dropout(x, 0.5, true); }};
  for (const auto& draw : draws) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto s = net.conv("s", 12, 4);
    net.wires = [=](const Tensor& x) mutable { return s(draw(a(x))); };
    expect_no_fold(net, {std::string("s: 4 channels: ") + kManyNumbers});
  }
}

TEST_F(FoldWiring, KnowsWhichPoolingKeepsConstants) {
  for (const bool divided : {false, true}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto s = net.conv("s", 12, 4);
    net.wires = [=](const Tensor& x) mutable {
      return s(torch::avg_pool2d(a(x), {2, 2}, {2, 2}, {0, 0}, !divided, true,
                                 divided ? std::optional<int64_t>(3) : std::nullopt));
    };
    if (divided) {
      expect_no_fold(net, {std::string("s: 4 channels: ") + kManyNumbers});
    } else {
      expect_exact_fold(net, {"s: 4 channels"});
    }
  }
}

TEST_F(FoldWiring, NamesNormsWithNumbersOfTheirOwn) {
  auto a = net_.unit("a", 3, 12);
  auto gamma = net_.parameter("gamma", {12});
  auto norm = net_.add("norm", nn::BatchNorm2d(12));
  auto s1 = net_.conv("s1", 12, 4), s2 = net_.conv("s2", 12, 4);
  net_.wires = [=](const Tensor& x) mutable {
    // One measures in eval mode, too; the other one's gamma is computed.
    const Tensor y = a(x);
    const Tensor measured = torch::batch_norm(y, norm->weight, norm->bias, norm->running_mean,
                                              norm->running_var, true, 0, 1e-5, false);
    const Tensor scaled = torch::batch_norm(y, torch::fmod(norm->weight, gamma.mean().abs() + 1), norm->bias,
                                            norm->running_mean, norm->running_var, false, 0, 1e-5, false);
    const Tensor z = s1(measured);
    return z * s2(scaled);
  };
  const FoldOutcome outcome = fold_thirds(net_, fold_image());
  EXPECT_TRUE(torch::equal(outcome.dropped, outcome.got));
  EXPECT_EQ(outcome.report.folded, std::vector<std::string>());
  EXPECT_EQ(outcome.report.not_folded,
            (std::vector<std::string>{std::string("s1: 4 channels: ") + kManyNumbers,
                                      std::string("s2: 4 channels: ") + kManyNumbers}));
}

TEST_F(FoldWiring, FollowsConstantsThatMove) {
  auto a = net_.unit("a", 3, 12);
  auto s = net_.linear("s", 12, 5);
  net_.wires = [=](const Tensor& x) mutable {
    const Tensor y = a(x).contiguous(at::MemoryFormat::ChannelsLast);
    const Tensor moved = torch::tanh(y.permute({0, 2, 3, 1})).flip({3}).slice(1, 1, 4);
    return torch::linear(moved, s->weight, s->bias);
  };
  expect_exact_fold(net_, {"s: 4 channels"});
}

TEST_F(FoldWiring, FollowsPartsAndJoins) {
  auto a = net_.unit("a", 3, 12);
  auto s = net_.conv("s", 12, 4);
  net_.wires = [=](const Tensor& x) mutable {
    const auto parts = a(x).split_with_sizes({5, 7}, 1);
    return s(torch::cat({torch::tanh(parts[1]), parts[0]}, 1));
  };
  expect_exact_fold(net_, {"s: 4 channels"});
}

TEST_F(FoldWiring, FollowsGates) {
  auto a = net_.unit("a", 3, 12);
  auto down = net_.linear("down", 12, 6), up = net_.linear("up", 6, 12);
  auto s = net_.conv("s", 12, 4);
  net_.wires = [=](const Tensor& x) mutable {
    const Tensor y = a(x);
    const Tensor gate = torch::sigmoid(up(torch::relu(down(y.mean({2, 3})))));
    return s(y * gate.view({x.size(0), 12, 1, 1}));
  };
  expect_exact_fold(net_, {"down: 4 channels", "s: 4 channels"});
}

/// A join of a value with itself has each position twice.
TEST_F(FoldWiring, FollowsJoinsOfAValueWithItself) {
  for (const bool half : {false, true}) {
    FoldWires net;
    auto a = net.unit("a", 3, 12);
    auto s = net.linear("s", half ? 12 : 24, 5);
    net.wires = [=](const Tensor& x) mutable {
      const Tensor y = a(x), both = torch::cat({y, torch::tanh(y)}, 1).mean({2, 3});
      return torch::linear(half ? both.slice(1, 12, 24) : both, s->weight, s->bias);
    };
    if (half) {
      expect_no_fold(net, {std::string("s: 4 channels: ") + kManyNumbers});
    } else {
      expect_exact_fold(net, {"s: 8 channels"});
    }
  }
}

/// Tokens and channels of one value are cut at once: the constants of the channels are folded, those of the tokens are not one
/// number each.
TEST_F(FoldWiring, FollowsTwoDimensionsAtOnce) {
  auto tokens = net_.add("tokens", nn::Conv1d(nn::Conv1dOptions(6, 9, 1)));
  auto channels = net_.linear("channels", 5, 7), back = net_.linear("back", 7, 4),
       out = net_.linear("out", 9, 3);
  net_.wires = [=](const Tensor& x) mutable {
    const Tensor y = torch::linear(tokens(x), channels->weight, channels->bias);
    const Tensor z = torch::linear(torch::sigmoid(y), back->weight, back->bias);
    return torch::linear(z.transpose(1, 2), out->weight, out->bias);
  };
  const FoldOutcome outcome = fold_thirds(net_, torch::randn({2, 6, 5}));
  EXPECT_EQ(outcome.report.folded, std::vector<std::string>{"back: 2 channels"});
  EXPECT_EQ(outcome.report.not_folded,
            std::vector<std::string>{std::string("out: 3 channels: ") + kManyNumbers});
  EXPECT_GT(fold_distance(outcome.dropped, outcome.got), 1e-3);
}

/// Random networks whose convolutions have no padding: wherever the report names no loss, the numbers are those wanted.
TEST(FoldConstants, IsExactInRandomNetworksWhereItNamesNoLoss) {
  int folded = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomChannels net(seed);
    const torch::NoGradGuard no_grad;
    for (const auto& child : net.children()) {
      auto* conv = child->as<nn::Conv2d>();
      if (!conv) continue;
      conv->options.padding(torch::ExpandingArray<2>(0));
      conv->weight.set_data(conv->weight.data().narrow(2, 0, 1).narrow(3, 0, 1).contiguous());
    }
    net.to(torch::kDouble);
    net.eval();
    const Tensor x = torch::randn({2, 3, 8, 8}, torch::kDouble);
    const Captured module = capture(net, {x});
    module->eval();
    const auto groups = prune::groups(module->graph());
    const auto removals = some_units(groups, 0.4, seed);
    const Captured copy = prune::remove_units(*module, groups, no_units(groups)).module;
    copy->eval();
    const auto report = prune::fold_constants(*copy, groups, removals);
    if (!report.not_folded.empty()) continue;
    folded += !report.folded.empty();
    expect_near(without_rows(*module, groups, removals)->forward(x),
                prune::remove_units(*copy, groups, removals).module->forward(x), 1e-9,
                "seed " + std::to_string(seed) + "\n" + net.words());
  }
  EXPECT_GE(folded, 5);
}

}  // namespace
}  // namespace ulp::test
