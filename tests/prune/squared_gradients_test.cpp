// Squared gradients and their criterion against plain loops; groups that are compared by their pattern.
#include "ulp/prune/structured/squared_gradients.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/prune/structured/channel_pruning_recipe.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

struct Neurons : nn::Module {
  nn::Linear fc1 = register_module("fc1", nn::Linear(3, 4)), fc2 = register_module("fc2", nn::Linear(4, 2));
  Tensor forward(const Tensor& x) { return fc2(torch::tanh(fc1(x))); }
};

struct Judged {
  Neurons net;
  Captured module;
  prune::Groups groups;
  Tensor x, y;
  Judged() {
    torch::manual_seed(8);
    net.to(torch::kDouble);
    x = torch::randn({6, 3}, torch::kDouble);
    y = torch::tensor({0, 1, 1, 0, 1, 0});
    module = capture(net, {x});
    groups = prune::groups(module->graph());
  }
  Tensor loss(graph::GraphModule& model, int64_t first, int64_t count) const {
    return torch::cross_entropy_loss(model.forward(x.narrow(0, first, count)), y.narrow(0, first, count));
  }
  prune::SquaredGradients of_samples() {
    return prune::squared_gradients(*module, 6,
                                    [&](graph::GraphModule& m, int64_t i) { return loss(m, i, 1); });
  }
};

TEST(SquaredGradients, AreTheMeanOverSamples) {
  Judged j;
  std::map<std::string, Tensor> want;
  for (int64_t i = 0; i < 6; ++i) {
    j.net.zero_grad();
    torch::cross_entropy_loss(j.net.forward(j.x.narrow(0, i, 1)), j.y.narrow(0, i, 1)).backward();
    for (const auto& item : j.net.named_parameters()) {
      Tensor& sum = want[item.key()];
      const Tensor square = item.value().grad().square() / 6;
      sum = sum.defined() ? sum + square : square;
    }
  }
  j.net.zero_grad();
  j.net.fc1->weight.mutable_grad() = torch::ones_like(j.net.fc1->weight);
  const auto found = j.of_samples();
  ASSERT_EQ(found.size(), 4u);
  for (const auto& [name, tensor] : found)
    EXPECT_TRUE(torch::allclose(tensor, want.at(name), 1e-12, 1e-15)) << name;
  EXPECT_TRUE(torch::equal(j.net.fc1->weight.grad(), torch::ones_like(j.net.fc1->weight)))
      << ".grad was touched";
}

TEST(SquaredGradients, ScoreUnitsAsTheDiagonalOfTheHessian) {
  Judged j;
  const auto squares = j.of_samples();
  ASSERT_EQ(j.groups.groups.size(), 1u);
  const auto scores = prune::importance(*j.module, j.groups,
                                        {.criterion = prune::Criterion::hessian,
                                         .normalization = prune::Normalization::none,
                                         .squared_gradients = &squares});
  for (int64_t u = 0; u < 4; ++u) {
    double want = 0;
    for (int64_t k = 0; k < 3; ++k)
      want +=
          std::pow(j.net.fc1->weight[u][k].item<double>(), 2) * squares.at("fc1.weight")[u][k].item<double>();
    want += std::pow(j.net.fc1->bias[u].item<double>(), 2) * squares.at("fc1.bias")[u].item<double>();
    for (int64_t o = 0; o < 2; ++o)
      want +=
          std::pow(j.net.fc2->weight[o][u].item<double>(), 2) * squares.at("fc2.weight")[o][u].item<double>();
    EXPECT_NEAR(scores[0][u], want, 1e-12);
  }
  EXPECT_ERROR(prune::importance(*j.module, j.groups, {.criterion = prune::Criterion::hessian}),
               "expected squared gradients for hessian, got none");
  prune::SquaredGradients part = squares;
  part.erase("fc2.weight");
  EXPECT_ERROR(prune::importance(*j.module, j.groups,
                                 {.criterion = prune::Criterion::hessian, .squared_gradients = &part}),
               "expected squared gradients of 'fc2.weight' of its sizes for hessian, got none");
  const prune::ChannelPruningRecipe recipe{.criterion = prune::Criterion::hessian,
                                           .measure = prune::Measure::parameters};
  EXPECT_ERROR(prune::prune_by_recipe(*j.module, recipe, 0.7), "expected squared gradients for hessian");
  const auto narrower = prune::prune_by_recipe(*j.module, recipe, 0.7, {.squared_gradients = &squares});
  EXPECT_LT(narrower.module->graph().find_attribute("fc1.weight")->tensor.size(0), 4);
}

TEST(SquaredGradients, RefuseLossesThatAreNone) {
  Judged j;
  const auto with = [&](int64_t count, const std::function<Tensor(graph::GraphModule&, int64_t)>& loss) {
    return prune::squared_gradients(*j.module, count, loss);
  };
  EXPECT_ERROR(with(0, [&](auto& m, int64_t) { return j.loss(m, 0, 1); }),
               "expected a count of at least 1, got 0");
  EXPECT_ERROR(with(1, {}), "expected a loss, got none");
  EXPECT_ERROR(with(1, [&](auto& m, int64_t) { return m.forward(j.x); }), "got several numbers");
  EXPECT_ERROR(with(1, [&](auto&, int64_t) { return torch::ones({}); }), "got one that does not");
  EXPECT_ERROR(with(1, [&](auto& m, int64_t) { return j.loss(m, 0, 1) * INFINITY; }),
               "expected finite gradients, got others of 'fc1.weight'");
}

TEST(Isomorphic, ComparesGroupsOfTheSameOpsAmongThemselves) {
  struct Net : nn::Module {
    nn::Conv2d a = register_module("a", nn::Conv2d(1, 4, 1)), b = register_module("b", nn::Conv2d(4, 4, 1)),
               c = register_module("c", nn::Conv2d(4, 4, 1));
    nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(4));
    nn::Linear d = register_module("d", nn::Linear(4, 2));
    Tensor forward(const Tensor& x) { return d(bn(c(torch::relu(b(torch::relu(a(x)))))).mean({2, 3})); }
  } net;
  const Captured module = capture(net, {torch::randn({2, 1, 3, 3})});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 3u) << words(groups);
  EXPECT_EQ(groups.groups[0].pattern, groups.groups[1].pattern);  // conv, relu, conv
  EXPECT_NE(groups.groups[0].pattern, groups.groups[2].pattern);  // conv, norm, linear
  EXPECT_NE(groups.groups[0].pattern.find("aten::conv2d weight 0 row\n"), std::string::npos)
      << groups.groups[0].pattern;
  // By global scores only the last group would lose units.
  const prune::Importance scores{{10, 11, 12, 13}, {20, 21, 22, 23}, {1, 2, 3, 4}};
  using Units = std::vector<std::vector<int64_t>>;
  const auto units = [&](prune::UnitSelection options) {
    return prune::select_units(groups, scores, options).units;
  };
  EXPECT_EQ(units({.amount = 0.25, .scope = prune::UnitScope::global}), (Units{{}, {}, {0, 1, 2}}));
  EXPECT_EQ(units({.amount = 0.25, .scope = prune::UnitScope::isomorphic}), (Units{{0, 1}, {}, {0}}));
  EXPECT_EQ(units({.amount = 0.5, .scope = prune::UnitScope::isomorphic, .cap = 0.5}),
            (Units{{0, 1}, {0, 1}, {0, 1}}));
}

TEST(Isomorphic, FindsTheBlocksOfANetwork) {
  const auto model = models::make_model("resnet20");
  const auto groups = prune::groups(capture(*model, {torch::randn({2, 3, 32, 32})})->graph());
  std::map<std::string, int> patterns;
  for (const prune::Group& group : groups.groups) ++patterns[group.pattern];
  // Nine blocks have inner channels between a 3x3 convolution with norm and one that reads them.
  int most = 0;
  for (const auto& [pattern, count] : patterns) most = std::max(most, count);
  EXPECT_EQ(most, 9);
  EXPECT_LE(patterns.size(), 4u);
}

}  // namespace
}  // namespace ulp::test
