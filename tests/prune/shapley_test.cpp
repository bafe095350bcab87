// Shapley values against all subsets of units, zeroed in the whole network.
#include "ulp/prune/structured/shapley.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <bit>
#include <cmath>
#include <map>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"

namespace ulp::test {
namespace {

using Batches = std::vector<std::vector<at::Tensor>>;
namespace nn = torch::nn;

/// Mean of a function of the results that no unit leaves alone.
double wavy_loss(const std::vector<at::Tensor>& results, int64_t batch) {
  double sum = 0;
  for (const at::Tensor& result : results) {
    const at::Tensor values = result.to(torch::kDouble);
    sum += (values.sin() + values.square() * 0.3 + values * 0.1 * static_cast<double>(batch + 1))
               .mean()
               .item<double>();
  }
  return sum;
}

/// The module with units of one group zeroed, all of them as well.
Captured without(const graph::GraphModule& module, const prune::Groups& groups, size_t g,
                 const std::vector<int64_t>& units) {
  Captured copy = prune::remove_units(module, groups, no_units(groups)).module;
  copy->eval();
  for (const int64_t unit : units) {
    prune::Removals one = no_units(groups);
    one.units[g] = {unit};
    if (groups.groups[g].units > 1) prune::zero_units(*copy, groups, one);
  }
  return copy;
}

double mean_loss(graph::GraphModule& module, const Batches& batches) {
  const torch::NoGradGuard no_grad;
  double sum = 0, items = 0;
  for (size_t b = 0; b < batches.size(); ++b) {
    const auto count = static_cast<double>(batches[b][0].size(0));
    sum += count * wavy_loss(module.forward_all(batches[b]), static_cast<int64_t>(b));
    items += count;
  }
  return sum / items;
}

/// The definition: over all sets of units that are gone before.
std::vector<double> plain_shapley(const graph::GraphModule& module, const prune::Groups& groups, size_t g,
                                  const Batches& batches) {
  const int64_t n = groups.groups[g].units;
  std::vector<double> losses;
  for (uint32_t set = 0; set < 1u << n; ++set) {
    std::vector<int64_t> gone;
    for (int64_t u = 0; u < n; ++u) {
      if (set >> u & 1) gone.push_back(u);
    }
    losses.push_back(mean_loss(*without(module, groups, g, gone), batches));
  }
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t u = 0; u < n; ++u) {
    for (uint32_t set = 0; set < 1u << n; ++set) {
      if (set >> u & 1) continue;
      const auto size = std::popcount(set);
      const double orders = std::tgamma(size + 1) * std::tgamma(n - size) / std::tgamma(n + 1);
      values[static_cast<size_t>(u)] += orders * (losses[set | 1u << u] - losses[set]);
    }
  }
  return values;
}

struct Sampled {
  Captured module;
  prune::Groups groups;
  Batches batches;
  template <typename Net>
  Sampled(Net net, const std::vector<int64_t>& sizes) {
    net.to(torch::kDouble);
    for (auto& buffer : net.named_buffers()) {
      if (buffer.key().ends_with("running_mean")) buffer.value().uniform_(-1, 1);
    }
    for (const int64_t items : {3, 2}) {
      std::vector<int64_t> shape = sizes;
      shape.insert(shape.begin(), items);
      batches.push_back({torch::randn(shape, torch::kDouble)});
    }
    module = capture(net, batches[0]);
    groups = prune::groups(module->graph());
  }
  prune::ShapleyValues values(const prune::ShapleyOptions& options) const {
    return prune::shapley_values(*module, groups, batches, wavy_loss, options);
  }
};

struct PlainNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(2, 4, 3));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(4));
  nn::Linear fc1 = register_module("fc1", nn::Linear(16, 5));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.5));
  nn::Linear fc2 = register_module("fc2", nn::Linear(5, 3));
  at::Tensor forward(const at::Tensor& x) {
    return fc2(drop(torch::relu(fc1(torch::relu(bn(conv(x))).flatten(1)))));
  }
};

/// A stream of 4 channels with a depthwise block, whose first part has no relu.
struct StreamNet : nn::Module {
  nn::Conv2d stem = register_module("stem", nn::Conv2d(2, 4, 3)),
             up = register_module("up", nn::Conv2d(4, 5, 1)),
             down = register_module("down", nn::Conv2d(5, 4, 1));
  nn::Conv2d depthwise =
      register_module("depthwise", nn::Conv2d(nn::Conv2dOptions(5, 5, 3).groups(5).padding(1)));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(4)),
                  middle = register_module("middle", nn::BatchNorm2d(5));
  nn::Linear head = register_module("head", nn::Linear(4, 3));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor s = stem(x);
    const at::Tensor y = s + bn(down(torch::silu(middle(depthwise(torch::relu(up(s)))))));
    return head(torch::relu(y).mean({2, 3}));
  }
};

struct RecurrentNet : nn::Module {
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(3, 4).batch_first(true)));
  nn::Linear head = register_module("head", nn::Linear(4, 2));
  at::Tensor forward(const at::Tensor& x) { return head(std::get<0>(lstm(x))); }
};

struct HeadsNet : nn::Module {
  nn::Linear qkv = register_module("qkv", nn::Linear(6, 24)), out = register_module("out", nn::Linear(8, 6));
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(x).reshape({x.size(0), -1, 3, 4, 2}).permute({2, 0, 3, 1, 4}).unbind(0);
    return x +
           out(torch::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2).flatten(2));
  }
};

void expect_exact(const Sampled& net) {
  ASSERT_FALSE(net.groups.groups.empty());
  const auto found = net.values({.permutations = 120});
  for (size_t g = 0; g < net.groups.groups.size(); ++g) {
    const prune::Group& group = net.groups.groups[g];
    ASSERT_LE(group.units, 5) << group.name();
    const auto want = plain_shapley(*net.module, net.groups, g, net.batches);
    EXPECT_EQ(found.permutations[g], std::tgamma(group.units + 1)) << group.name();
    double largest = 0;
    for (size_t u = 0; u < want.size(); ++u) {
      EXPECT_NEAR(found.values[g][u], want[u], 1e-10) << group.name() << " unit " << u;
      EXPECT_EQ(found.standard_errors[g][u], 0);
      EXPECT_EQ(found.half_width(g, u), 0);
      largest = std::max(largest, std::abs(want[u]));
    }
    EXPECT_GT(largest, 1e-4) << "zeroing changes nothing, so nothing was tested";
  }
}

TEST(Shapley, OfFewUnitsIsExact) {
  torch::manual_seed(3);
  expect_exact({PlainNet(), {2, 4, 4}});
  expect_exact({StreamNet(), {2, 5, 5}});
  expect_exact({RecurrentNet(), {3, 3}});
  expect_exact({HeadsNet(), {3, 6}});
}

TEST(Shapley, SampledValuesAreWithinTheirIntervals) {
  torch::manual_seed(4);
  const Sampled net(PlainNet(), {2, 4, 4});
  const auto exact = net.values({.permutations = 120});
  const auto found = net.values({.permutations = 20, .seed = 5});
  int inside = 0, all = 0;
  for (size_t g = 0; g < 2; ++g) {
    ASSERT_EQ(found.permutations[g], 20);
    for (size_t u = 0; u < found.values[g].size(); ++u, ++all) {
      const double error = std::abs(found.values[g][u] - exact.values[g][u]);
      EXPECT_LE(error, 2 * found.half_width(g, u) + 1e-12);
      inside += error <= found.half_width(g, u) + 1e-12;
      EXPECT_NEAR(found.half_width(g, u), 2.093 * found.standard_errors[g][u], 1e-12);
      EXPECT_GT(found.standard_errors[g][u], 0);
    }
  }
  EXPECT_GE(inside, all - 2);
  EXPECT_EQ(found.passes, 2 * 20 * (4 + 5));
  const auto again = net.values({.permutations = 20, .seed = 5});
  EXPECT_EQ(again.values, found.values);
  EXPECT_NE(net.values({.permutations = 20, .seed = 6}).values, found.values);
  EXPECT_EQ(net.values({.permutations = 1}).half_width(0, 0), INFINITY);
}

TEST(Shapley, NarrowIntervalsEndAGroup) {
  torch::manual_seed(4);
  const Sampled net(PlainNet(), {2, 4, 4});
  const auto coarse = net.values({.permutations = 23, .interval = 1e6});
  EXPECT_EQ(coarse.permutations, (std::vector<int64_t>{3, 3}));
  const auto found = net.values({.permutations = 23, .interval = 0.5});
  for (size_t g = 0; g < 2; ++g) {
    double largest = 0;
    for (const double value : found.values[g]) largest = std::max(largest, std::abs(value));
    if (found.permutations[g] == 23) continue;
    for (size_t u = 0; u < found.values[g].size(); ++u) EXPECT_LE(found.half_width(g, u), 0.5 * largest);
  }
  EXPECT_LT(found.permutations[0] + found.permutations[1], 46);
}

/// Sums are what all units together change, whatever the order: in large networks, too.
TEST(Shapley, SumsUpToTheLossWithoutTheGroup) {
  for (const char* name : {"resnet20", "shufflenet_v2_x1_0"}) {
    torch::manual_seed(7);
    const auto model = models::make_model(name, {.num_classes = 5});
    const Batches batches{{torch::randn({2, 3, 32, 32})}};
    model->forward(batches[0][0]);
    const Captured module = capture(*model, batches[0]);
    prune::Groups groups = prune::groups(module->graph());
    std::erase_if(groups.groups, [](const prune::Group& group) { return group.units > 32; });
    const size_t step = groups.groups.size() / 3;
    prune::Groups some{groups.options, {}, {}};
    for (size_t g = 0; g < groups.groups.size(); g += step) some.groups.push_back(groups.groups[g]);
    module->train();
    const auto found = prune::shapley_values(*module, some, batches, wavy_loss, {.permutations = 1});
    EXPECT_TRUE(module->is_training());
    module->eval();
    const double whole = mean_loss(*module, batches);
    int64_t calls = 0;
    for (const auto& node : module->graph().nodes()) calls += node->kind() == graph::Node::Kind::call;
    for (size_t g = 0; g < some.groups.size(); ++g) {
      std::vector<int64_t> all(static_cast<size_t>(some.groups[g].units));
      for (size_t u = 0; u < all.size(); ++u) all[u] = static_cast<int64_t>(u);
      const double want = mean_loss(*without(*module, some, g, all), batches) - whole;
      double sum = 0;
      for (const double value : found.values[g]) sum += value;
      EXPECT_NEAR(sum, want, 1e-5 * std::max(1.0, std::abs(whole))) << name << " " << some.groups[g].name();
      EXPECT_LT(found.nodes[g], calls) << name << " " << some.groups[g].name();
    }
    EXPECT_LT(std::ranges::min(found.nodes), calls / 2) << name;
  }
}

TEST(Shapley, RefusesWhatItCannotUse) {
  const Sampled net(PlainNet(), {2, 4, 4});
  EXPECT_ERROR(net.values({.permutations = 0}), "expected permutations of at least 1, got 0");
  EXPECT_ERROR(net.values({.interval = -1}), "expected an interval of at least 0, got -1");
  EXPECT_ERROR(prune::shapley_values(*net.module, net.groups, {}, wavy_loss),
               "expected batches to run on, got none");
  EXPECT_ERROR(prune::shapley_values(*net.module, net.groups, net.batches, {}), "expected a loss, got none");
  EXPECT_ERROR(prune::shapley_values(*net.module, net.groups, net.batches,
                                     [](const auto&, int64_t) { return std::nan(""); }),
               "expected a loss that is a number, got nan");
  const Sampled other(RecurrentNet(), {3, 3});
  EXPECT_ERROR(prune::shapley_values(*net.module, other.groups, net.batches, wavy_loss),
               "expected the groups of this graph, got 'lstm.");
}

}  // namespace
}  // namespace ulp::test
