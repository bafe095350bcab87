// Each penalty's gradient against its formula, element by element.
#include "ulp/prune/structured/regularize.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cut_networks.h"
#include "error_of.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using prune::Penalty;
using torch::Tensor;

struct PenalisedNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(2, 3, 3));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(3));
  nn::Linear fc = register_module("fc", nn::Linear(12, 2));
  Tensor forward(const Tensor& x) { return fc(torch::relu(bn(conv(x))).flatten(1)); }
};

struct Penalised {
  std::shared_ptr<PenalisedNet> net = std::make_shared<PenalisedNet>();
  Captured module;
  prune::Groups groups;
  std::map<std::string, Tensor> before;  // gradients
  Penalised() {
    torch::manual_seed(5);
    net->to(torch::kDouble);
    {
      const torch::NoGradGuard no_grad;
      net->bn->weight.copy_(torch::tensor({0.5, -2.0, 0.0}));
    }
    module = capture(*net, {torch::randn({2, 2, 4, 4}, torch::kDouble)});
    groups = prune::groups(module->graph());
    set_gradients();
  }
  void set_gradients() {
    for (const auto& item : net->named_parameters()) {
      item.value().mutable_grad() = torch::randn_like(item.value()).detach();
      before[item.key()] = item.value().grad().clone();
    }
  }
  Tensor added(const std::string& name) const {
    return net->named_parameters()[name].grad() - before.at(name);
  }
  /// All weights of a unit.
  double norm(int64_t u) const {
    return std::sqrt((net->conv->weight[u].square().sum() + net->bn->weight[u].square() +
                      net->fc->weight.narrow(1, 4 * u, 4).square().sum())
                         .item<double>());
  }
  /// Each unit's weights times a number is what was added; biases and shifts got nothing.
  void expect_added(const std::vector<double>& factors) const {
    for (int64_t u = 0; u < 3; ++u) {
      const double f = factors[static_cast<size_t>(u)];
      const auto near = [&](const Tensor& got, const Tensor& want) {
        EXPECT_TRUE(torch::allclose(got, want, 1e-12, 1e-14)) << "unit " << u << "\n" << got << "\n" << want;
      };
      near(added("conv.weight")[u], f * net->conv->weight[u].detach());
      near(added("bn.weight")[u], f * net->bn->weight[u].detach());
      near(added("fc.weight").narrow(1, 4 * u, 4), f * net->fc->weight.detach().narrow(1, 4 * u, 4));
    }
    for (const char* name : {"conv.bias", "bn.bias", "fc.bias"})
      EXPECT_EQ(added(name).abs().max().item<double>(), 0) << name;
  }
};

TEST(Regularizer, SlimmingAddsTheSignOfScales) {
  Penalised p;
  prune::Regularizer regularizer(p.module, p.groups, {.penalty = Penalty::slimming, .lambda = 0.25});
  regularizer.add_to_gradients(4);
  EXPECT_TRUE(
      torch::allclose(p.added("bn.weight"), torch::tensor({1.0, -1.0, 0.0}, torch::kDouble), 0, 1e-14));
  for (const char* name : {"conv.weight", "conv.bias", "bn.bias", "fc.weight", "fc.bias"})
    EXPECT_EQ(p.added(name).abs().max().item<double>(), 0) << name;
}

TEST(Regularizer, GroupLassoDividesByTheNormOfAllThatIsCutTogether) {
  Penalised p;
  prune::Regularizer regularizer(p.module, p.groups, {.penalty = Penalty::group_lasso, .lambda = 0.1});
  regularizer.add_to_gradients();
  p.expect_added({0.1 / p.norm(0), 0.1 / p.norm(1), 0.1 / p.norm(2)});
  // At zero there is no direction.
  {
    const torch::NoGradGuard no_grad;
    p.net->conv->weight[1].zero_();
    p.net->bn->weight[1].zero_();
    p.net->fc->weight.narrow(1, 4, 4).zero_();
  }
  p.set_gradients();
  regularizer.add_to_gradients();
  p.expect_added({0.1 / p.norm(0), 0, 0.1 / p.norm(2)});
}

std::vector<double> unimportance(const Penalised& p) {
  const auto scores =
      prune::importance(*p.module, p.groups, {.normalization = prune::Normalization::none}).at(0);
  const double most = std::ranges::max(scores), least = std::ranges::min(scores);
  std::vector<double> result;
  for (const double one : scores) result.push_back((most - one) / (most - least));
  return result;
}

TEST(Regularizer, DependencyIsStrongerOnWhatMattersLess) {
  Penalised p;
  prune::Regularizer regularizer(p.module, p.groups, {.lambda = 0.01});
  std::vector<double> want;
  for (const double low : unimportance(p)) want.push_back(0.01 * std::pow(2.0, 4 * low));
  EXPECT_EQ(std::ranges::max(want), 0.16);
  EXPECT_EQ(std::ranges::min(want), 0.01);
  regularizer.add_to_gradients();
  p.expect_added(want);
  // All alike: the same for all, no NaN.
  {
    const torch::NoGradGuard no_grad;
    for (Tensor& weight : p.net->parameters()) weight.fill_(0.5);
  }
  regularizer.update();
  p.set_gradients();
  regularizer.add_to_gradients();
  p.expect_added({0.01, 0.01, 0.01});
}

TEST(Regularizer, GrowingGrowsWithEachUpdate) {
  Penalised p;
  prune::Regularizer regularizer(p.module, p.groups,
                                 {.penalty = Penalty::growing, .lambda = 0.02, .growth = 0.003});
  EXPECT_EQ(regularizer.strengths(), (prune::Importance{{0.02, 0.02, 0.02}}));
  for (int i = 0; i < 3; ++i) regularizer.update();
  std::vector<double> want;
  for (const double low : unimportance(p)) want.push_back(0.02 + 3 * 0.003 * low);
  for (size_t u = 0; u < 3; ++u) EXPECT_NEAR(regularizer.strengths()[0][u], want[u], 1e-15);
  regularizer.add_to_gradients();
  p.expect_added(want);
}

TEST(Regularizer, AUnitThatIsRowAndColumnIsPenalisedInBothOnce) {
  struct Net : nn::Module {
    nn::Embedding embedding = register_module("embedding", nn::Embedding(5, 3));
    nn::Linear inner = register_module("inner", nn::Linear(3, 3));
    nn::Linear head = register_module("head", nn::Linear(3, 2));
    Tensor forward(const Tensor& ids) {
      const Tensor x = embedding(ids);
      return head(x + inner(x));
    }
  } net;
  const Captured module = capture(net, {torch::randint(0, 5, {2, 4})});
  const auto groups = prune::groups(module->graph());
  ASSERT_EQ(groups.groups.size(), 1u) << words(groups);
  for (Tensor& weight : net.parameters()) weight.mutable_grad() = torch::zeros_like(weight).detach();
  prune::Regularizer regularizer(module, groups, {.penalty = Penalty::growing, .lambda = 1});
  regularizer.add_to_gradients();
  EXPECT_TRUE(torch::equal(net.inner->weight.grad(), 2 * net.inner->weight.detach()));
  EXPECT_TRUE(torch::equal(net.embedding->weight.grad(), net.embedding->weight.detach()));
  EXPECT_TRUE(torch::equal(net.head->weight.grad(), net.head->weight.detach()));
}

TEST(Regularizer, PassesOverFrozenParametersAndRefusesWhatItCannotDo) {
  Penalised p;
  p.net->conv->weight.set_requires_grad(false);
  prune::Regularizer regularizer(p.module, p.groups, {.penalty = Penalty::growing, .lambda = 1});
  regularizer.add_to_gradients();
  EXPECT_EQ(p.added("conv.weight").abs().max().item<double>(), 0);
  EXPECT_GT(p.added("fc.weight").abs().max().item<double>(), 0);
  p.set_gradients();
  p.net->fc->weight.mutable_grad() = Tensor();
  EXPECT_ERROR(regularizer.add_to_gradients(), "expected a gradient of 'fc.weight', got none");
  EXPECT_EQ(p.added("bn.weight").abs().max().item<double>(), 0) << "half done";

  p.net->bn->weight.set_requires_grad(false);
  EXPECT_ERROR(prune::Regularizer(p.module, p.groups, {.penalty = Penalty::slimming}),
               "expected trained scales of norms for slimming, got none");
  EXPECT_ERROR(prune::Regularizer(p.module, {}, {}), "expected trained weights in the groups, got none");
  EXPECT_ERROR(prune::Regularizer(p.module, p.groups, {.lambda = -1}),
               "expected lambda of at least 0, got -1");
  EXPECT_ERROR(prune::Regularizer(nullptr, p.groups, {}), "expected a module, got none");
}

TEST(Regularizer, DrawsUnimportantUnitsToZeroInTraining) {
  Penalised p;
  {
    const torch::NoGradGuard no_grad;
    p.net->bn->weight.fill_(1);
    p.net->conv->weight[1].mul_(0.3);
    p.net->fc->weight.narrow(1, 4, 4).mul_(0.3);
  }
  prune::Regularizer regularizer(p.module, p.groups, {.lambda = 0.05});
  const double small = p.norm(1), large = std::min(p.norm(0), p.norm(2));
  torch::optim::SGD sgd(p.net->parameters(), 0.1);
  for (int i = 0; i < 20; ++i) {
    for (Tensor& weight : p.net->parameters()) weight.mutable_grad() = torch::zeros_like(weight).detach();
    regularizer.add_to_gradients();
    sgd.step();
    regularizer.update();
  }
  EXPECT_LT(p.norm(1) / small, 0.3);
  EXPECT_GT(std::min(p.norm(0), p.norm(2)) / large, 0.6);
}

}  // namespace
}  // namespace ulp::test
