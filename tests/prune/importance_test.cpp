// Scores against plain loops, selection and sizes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/activation_importance.h"
#include "ulp/prune/structured/select.h"

namespace ulp::test {
namespace {

using prune::Criterion;
using prune::Importance;
using torch::Tensor;
namespace nn = torch::nn;

struct ScoredNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(2, 5, 3));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(5));
  nn::Linear fc1 = register_module("fc1", nn::Linear(20, 6));
  nn::Linear fc2 = register_module("fc2", nn::Linear(6, 3));
  Tensor forward(const Tensor& x) { return fc2(torch::relu(fc1(torch::relu(bn(conv(x))).flatten(1)))); }
};

struct Scored {
  ScoredNet net;
  Captured module;
  prune::Groups groups;
  Scored() {
    torch::manual_seed(6);
    {
      const torch::NoGradGuard no_grad;
      net.bn->weight.normal_();
    }
    module = capture(net, {torch::randn({2, 2, 4, 4})});
    groups = prune::groups(module->graph());
  }
  Importance scores(Criterion criterion, prune::Normalization how = prune::Normalization::none) const {
    return prune::importance(*module, groups, {.criterion = criterion, .normalization = how, .seed = 9});
  }
};

/// Sum of f over the elements of a slice.
double over(const Tensor& t, const std::function<double(double)>& f) {
  double sum = 0;
  const Tensor flat = t.detach().to(torch::kDouble).contiguous().view(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) sum += f(flat[i].item<double>());
  return sum;
}
double square(double v) {
  return v * v;
}
double magnitude(double v) {
  return std::abs(v);
}

TEST(Importance, NormsAreThoseOfTheSlices) {
  const Scored s;
  ASSERT_EQ(s.groups.groups.size(), 2u) << words(s.groups);
  const auto l1 = s.scores(Criterion::l1), l2 = s.scores(Criterion::l2), group = s.scores(Criterion::group),
             scale = s.scores(Criterion::scale);
  for (int64_t u = 0; u < 5; ++u) {
    const Tensor row = s.net.conv->weight[u], columns = s.net.fc1->weight.narrow(1, 4 * u, 4);
    const double gamma = s.net.bn->weight[u].item<double>();
    EXPECT_NEAR(l1[0][u], over(row, magnitude), 1e-9);
    EXPECT_NEAR(l2[0][u], std::sqrt(over(row, square)), 1e-9);
    EXPECT_NEAR(group[0][u], (over(row, square) + over(columns, square) + gamma * gamma) / 3, 1e-9);
    EXPECT_NEAR(scale[0][u], std::abs(gamma), 1e-9);
  }
  for (int64_t u = 0; u < 6; ++u) {
    EXPECT_NEAR(l1[1][u], over(s.net.fc1->weight[u], magnitude), 1e-9);
    EXPECT_EQ(scale[1][u], INFINITY);
  }
}

TEST(Importance, TaylorTakesTheGradientsThatAreThere) {
  Scored s;
  EXPECT_ERROR(s.scores(Criterion::taylor), "expected a gradient of 'conv.weight' for taylor, got none");
  s.module->forward(torch::randn({3, 2, 4, 4})).square().sum().backward();
  const auto scores = s.scores(Criterion::taylor);
  const auto part = [](const Tensor& w, const auto& slice) {
    return over(slice(w) * slice(w.grad()), magnitude);
  };
  for (int64_t u = 0; u < 6; ++u) {
    const double want =
        part(s.net.fc1->weight, [&](const Tensor& t) { return t[u].to(torch::kDouble); }) +
        part(s.net.fc1->bias, [&](const Tensor& t) { return t[u].to(torch::kDouble); }) +
        part(s.net.fc2->weight, [&](const Tensor& t) { return t.select(1, u).to(torch::kDouble); });
    EXPECT_NEAR(scores[1][u], want, 1e-9 * std::max(1.0, want));
  }
}

TEST(Importance, FpgmIsTheDistanceFromAllOthersAndLampTheShareOfTheLarger) {
  const Scored s;
  const auto fpgm = s.scores(Criterion::fpgm), lamp = s.scores(Criterion::lamp),
             norms = s.scores(Criterion::group);
  for (int64_t u = 0; u < 5; ++u) {
    double distance = 0, larger = 0;
    for (int64_t v = 0; v < 5; ++v) {
      distance += std::sqrt(
          over(s.net.conv->weight[u].to(torch::kDouble) - s.net.conv->weight[v].to(torch::kDouble), square));
      if (norms[0][v] >= norms[0][u]) larger += norms[0][v];
    }
    EXPECT_NEAR(fpgm[0][u], distance, 1e-9);
    EXPECT_NEAR(lamp[0][u], norms[0][u] / larger, 1e-12);
  }
}

TEST(Importance, NormalizesEachGroupAndDrawsFromTheSeed) {
  const Scored s;
  for (const auto& scores : s.scores(Criterion::l2, prune::Normalization::mean)) {
    double sum = 0;
    for (const double score : scores) sum += score;
    EXPECT_NEAR(sum / static_cast<double>(scores.size()), 1, 1e-12);
  }
  for (const auto& scores : s.scores(Criterion::l2, prune::Normalization::max))
    EXPECT_EQ(std::ranges::max(scores), 1);
  EXPECT_EQ(s.scores(Criterion::random), s.scores(Criterion::random));
  EXPECT_NE(prune::importance(*s.module, s.groups, {.criterion = Criterion::random, .seed = 1}),
            prune::importance(*s.module, s.groups, {.criterion = Criterion::random, .seed = 2}));
}

TEST(ActivationImportance, IsWhatTheLayersBehindRead) {
  Scored s;
  s.module->train();
  const std::vector<std::vector<Tensor>> batches{{torch::randn({3, 2, 4, 4})}, {torch::randn({1, 2, 4, 4})}};
  const auto scores = [&](prune::ActivationScore score) {
    return prune::activation_importance(*s.module, s.groups, score, batches, prune::Normalization::none);
  };
  const auto apoz = scores(prune::ActivationScore::apoz), mean = scores(prune::ActivationScore::mean),
             rank = scores(prune::ActivationScore::rank);
  EXPECT_TRUE(s.module->is_training());
  s.net.eval();
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::cat({batches[0][0], batches[1][0]}), maps = torch::relu(s.net.bn(s.net.conv(x))),
               hidden = torch::relu(s.net.fc1(maps.flatten(1)));
  for (int64_t u = 0; u < 5; ++u) {
    const Tensor map = maps.select(1, u);
    EXPECT_NEAR(apoz[0][u], over(map, [](double v) { return v != 0; }) / 16, 1e-9);
    EXPECT_NEAR(mean[0][u], over(map, magnitude) / 16, 1e-6);
    EXPECT_EQ(rank[0][u], INFINITY);  // fc1 reads them flattened
  }
  for (int64_t u = 0; u < 6; ++u) EXPECT_NEAR(mean[1][u], over(hidden.select(1, u), magnitude) / 4, 1e-6);
  EXPECT_ERROR(prune::activation_importance(*s.module, s.groups, prune::ActivationScore::mean, {}),
               "expected batches to run on, got none");
}

TEST(ActivationImportance, RanksMaps) {
  struct Net : nn::Module {
    nn::Conv2d a = register_module("a", nn::Conv2d(nn::Conv2dOptions(2, 2, 1).bias(false))),
               b = register_module("b", nn::Conv2d(2, 3, 1));
    Tensor forward(const Tensor& x) { return b(a(x)); }
  } net;
  {
    const torch::NoGradGuard no_grad;
    net.a->weight.copy_(torch::eye(2).view({2, 2, 1, 1}));
  }
  const Captured module = capture(net, {torch::randn({2, 2, 4, 4})});
  Tensor x = torch::zeros({2, 2, 4, 4});
  x.select(1, 0).copy_(torch::eye(4));
  x.select(1, 1).fill_(1);
  x[1][1].zero_();
  const auto scores =
      prune::activation_importance(*module, prune::groups(module->graph()), prune::ActivationScore::rank,
                                   {{x}}, prune::Normalization::none);
  EXPECT_EQ(scores, (Importance{{4, 0.5}}));
}

TEST(Select, TakesTheSameShareOfEachGroup) {
  const Scored s;
  const Importance scores{{5, 1, 4, 1, 3}, {6, 5, 4, 3, 2, 1}};
  const auto units = [&](prune::UnitSelection options) {
    return prune::select_units(s.groups, scores, options).units;
  };
  using Units = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(units({.amount = 0}), (Units{{}, {}}));
  EXPECT_EQ(units({.amount = 0.4}), (Units{{1, 3}, {4, 5}}));
  EXPECT_EQ(units({.amount = 0.2}), (Units{{1}, {5}}));  // of equal ones the first
  EXPECT_EQ(units({.amount = 1}), (Units{{1, 2, 3, 4}, {1, 2, 3, 4, 5}}));
  // Widths of 4: 3 of 5 would stay, 4 do; 4 of 6 stay.
  EXPECT_EQ(units({.amount = 0.4, .round_to = 4}), (Units{{1}, {4, 5}}));
  // Wider than the layers: nothing goes.
  EXPECT_EQ(units({.amount = 0.5, .round_to = 16}), (Units{{}, {}}));
  EXPECT_ERROR(units({.amount = 1.5}), "expected amount in [0, 1], got 1.5");
  EXPECT_ERROR(units({.round_to = 0}), "expected round_to of at least 1, got 0");
  EXPECT_ERROR(prune::select_units(s.groups, {{1, 2}}, {}), "expected the importance of 2 groups, got 1");
}

TEST(Select, TakesTheLeastOfAllUnderACap) {
  const Scored s;
  const Importance scores{{50, 10, 40, 11, 30}, {6, 5, 4, 3, 2, 1}};
  const auto units = [&](prune::UnitSelection options) {
    options.scope = prune::UnitScope::global;
    return prune::select_units(s.groups, scores, options).units;
  };
  using Units = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(units({.amount = 4.0 / 11}), (Units{{}, {2, 3, 4, 5}}));
  // The cap holds, and others go in the place of those that it keeps.
  EXPECT_EQ(units({.amount = 4.0 / 11, .cap = 0.5}), (Units{{1}, {3, 4, 5}}));
  EXPECT_EQ(units({.amount = 1}), (Units{{1, 2, 3, 4}, {1, 2, 3, 4, 5}}));
  const Importance endless{{INFINITY, INFINITY, INFINITY, INFINITY, INFINITY}, scores[1]};
  EXPECT_TRUE(prune::select_units(s.groups, endless, {.amount = 1, .scope = prune::UnitScope::global})
                  .units[0]
                  .empty());
}

TEST(Select, AHeadsWidthIsAllItsChannels) {
  struct Net : nn::Module {
    nn::Linear qkv = register_module("qkv", nn::Linear(6, 48)),
               out = register_module("out", nn::Linear(16, 6));
    Tensor forward(const Tensor& x) {
      const auto parts = qkv(x).reshape({x.size(0), -1, 3, 4, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
      return out(
          torch::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2).flatten(2));
    }
  } net;
  const Captured module = capture(net, {torch::randn({2, 5, 6})});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  const Importance scores{{1, 2, 3, 4}};
  EXPECT_EQ(prune::select_units(groups, scores, {.amount = 0.75, .round_to = 8}).units[0],
            (std::vector<int64_t>{0, 1}));
}

TEST(ModelSize, CountsParametersAndProducts) {
  const Scored s;
  const prune::ModelSize size = prune::size_of(s.module->graph());
  EXPECT_EQ(size.parameters, 5 * 2 * 9 + 5 + 10 + 20 * 6 + 6 + 6 * 3 + 3);
  EXPECT_EQ(size.macs, 4 * 5 * 2 * 9 + 20 * 6 + 6 * 3);
  const prune::Removals removals{{{0, 3}, {5}}};
  const prune::ModelSize after = prune::size_after(s.module->graph(), s.groups, removals),
                         cut = prune::size_of(
                             prune::remove_units(*s.module, s.groups, removals).module->graph());
  EXPECT_EQ(after.parameters, cut.parameters);
  EXPECT_EQ(after.macs, cut.macs);
  EXPECT_EQ(cut.macs, 4 * 3 * 2 * 9 + 12 * 5 + 5 * 3);
}

TEST(ModelSize, OfKnownNetworks) {
  // 272,474 parameters and 41 million products (He et al. 2015, CIFAR-10), 4.1 billion for ResNet-50 at 224 pixels.
  const auto resnet20 = models::make_model("resnet20");
  const auto size = prune::size_of(capture(*resnet20, {torch::randn({2, 3, 32, 32})})->graph());
  EXPECT_EQ(size.parameters, 272'474);
  EXPECT_NEAR(static_cast<double>(size.macs), 40.8e6, 0.5e6);
}

TEST(Target, IsReachedWithTheSmallestAmount) {
  torch::manual_seed(1);
  const auto model = models::make_model("resnet20");
  const Captured module = capture(*model, {torch::randn({2, 3, 32, 32})});
  const auto groups = prune::groups(module->graph());
  const auto whole = prune::size_of(module->graph());
  for (const auto scope : {prune::UnitScope::local, prune::UnitScope::global}) {
    for (const auto measure : {prune::Measure::macs, prune::Measure::parameters}) {
      const auto scores = prune::importance(*module, groups);
      const auto removals =
          prune::select_target(module->graph(), groups, scores, {.scope = scope}, {measure, 0.45});
      const auto size = prune::size_of(prune::remove_units(*module, groups, removals).module->graph());
      const double share = measure == prune::Measure::macs
                               ? double(size.macs) / double(whole.macs)
                               : double(size.parameters) / double(whole.parameters);
      EXPECT_LE(share, 0.45);
      EXPECT_GE(share, 0.38);
    }
  }
  const auto scores = prune::importance(*module, groups);
  EXPECT_ERROR(
      prune::select_target(module->graph(), groups, scores, {.scope = prune::UnitScope::global, .cap = 0.1},
                           {prune::Measure::macs, 0.2}),
      "expected macs of at most 0.2 of the network's, got 0.8");
  EXPECT_ERROR(prune::select_target(module->graph(), groups, scores, {}, {prune::Measure::macs, 0}),
               "expected a share in (0, 1], got 0");
}

}  // namespace
}  // namespace ulp::test
