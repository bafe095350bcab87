// What removed channels leave behind a norm.
#include "ulp/prune/structured/fold_constants.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"

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
  const Captured copy = prune::cut(module, groups, no_units(groups)).module;
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
               dropped = prune::cut(*module, groups, removals).module->forward(x);
  const Captured folded = prune::cut(*module, groups, no_units(groups)).module;
  folded->eval();
  const prune::FoldReport report = prune::fold_constants(*folded, groups, removals);
  const Tensor got = prune::cut(*folded, groups, removals).module->forward(x);
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

}  // namespace
}  // namespace ulp::test
