// One layer at a time against float64, within a bound that holds for any order of summation.
#include <gtest/gtest.h>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

using Precision = LowerOptions::Precision;

/// |error| <= gamma_K sum |w||x|, and 2 u (bf16) more where the operands are rounded.
double relative_bound(int64_t products, Precision precision) {
  const double gamma = static_cast<double>(products + 4) * kF32 * 1.01;
  return precision == Precision::bf16 ? gamma + 3 * kBF16 : gamma;
}

/// Every layer of the net is linear in its parameters but for relu, so running it on absolute values bounds
/// it.
void expect_close(const std::shared_ptr<Net>& net, const at::Tensor& example, const at::Tensor& input,
                  int64_t products) {
  const torch::NoGradGuard no_grad;
  auto module = captured(net, example);
  std::vector<at::Tensor> results;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    runtime::Engine engine(lower(*module, {.precision = precision}));
    results.push_back(run_engine(engine, input));
  }
  net->to(torch::kDouble);
  const at::Tensor expected = net->body(input.to(torch::kDouble));
  for (at::Tensor& parameter : net->parameters()) parameter.abs_();
  const at::Tensor magnitude = net->body(input.to(torch::kDouble).abs());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto precision = static_cast<Precision>(i);
    ASSERT_EQ(results[i].sizes(), expected.sizes());
    const at::Tensor excess =
        (results[i] - expected).abs() - relative_bound(products, precision) * magnitude - 1e-30;
    EXPECT_LE(excess.max().item<double>(), 0) << (i == 0 ? "f32" : "bf16");
  }
}

struct ConvCase {
  const char* name;
  int64_t in, out, kernel, stride, padding, dilation, groups;
  bool bias;
};

class ConvLayer : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvLayer, MatchesFloat64) {
  torch::manual_seed(1);
  const ConvCase& c = GetParam();
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(c.in, c.out, c.kernel)
                                                     .stride(c.stride)
                                                     .padding(c.padding)
                                                     .dilation(c.dilation)
                                                     .groups(c.groups)
                                                     .bias(c.bias)));
  net->body = [=](const at::Tensor& x) mutable { return torch::relu(conv->forward(x)); };
  expect_close(net, torch::randn({2, c.in, 11, 9}), torch::randn({3, c.in, 11, 9}),
               c.in / c.groups * c.kernel * c.kernel);
}

INSTANTIATE_TEST_SUITE_P(Lower, ConvLayer,
                         testing::Values(ConvCase{"Plain", 5, 7, 3, 1, 1, 1, 1, true},
                                         ConvCase{"NoBias", 16, 24, 3, 1, 1, 1, 1, false},
                                         ConvCase{"Strided", 8, 16, 3, 2, 1, 1, 1, true},
                                         ConvCase{"Pointwise", 16, 32, 1, 1, 0, 1, 1, true},
                                         ConvCase{"Dilated", 4, 6, 3, 1, 2, 2, 1, true},
                                         ConvCase{"Grouped", 8, 12, 3, 1, 1, 1, 4, true},
                                         ConvCase{"Depthwise", 12, 12, 3, 1, 1, 1, 12, true},
                                         ConvCase{"DepthwiseStrided", 12, 12, 5, 2, 2, 1, 12, false},
                                         ConvCase{"DepthMultiplier", 6, 12, 3, 1, 0, 1, 6, true}),
                         [](const auto& info) { return info.param.name; });

TEST(Layers, ResidualSum) {
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 6, 3).padding(1)));
  net->body = [=](const at::Tensor& x) mutable { return torch::relu(x + conv->forward(x)); };
  expect_close(net, torch::randn({2, 6, 5, 7}), torch::randn({4, 6, 5, 7}), 6 * 9);
}

TEST(Layers, LinearOfTwoAndMoreDimensions) {
  torch::manual_seed(3);
  for (const std::vector<int64_t>& rest : {std::vector<int64_t>{20}, {3, 20}, {3, 5, 20}}) {
    auto net = std::make_shared<Net>();
    auto fc = net->add("fc", torch::nn::Linear(20, 11));
    net->body = [=](const at::Tensor& x) mutable { return fc->forward(x); };
    std::vector<int64_t> sizes{2}, other{5};
    sizes.insert(sizes.end(), rest.begin(), rest.end());
    other.insert(other.end(), rest.begin(), rest.end());
    expect_close(net, torch::randn(sizes), torch::randn(other), 20);
  }
}

TEST(Layers, FlattenKeepsTheLogicalOrderBeforeALinearLayer) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 1)));
  auto fc = net->add("fc", torch::nn::Linear(4 * 5 * 3, 6));
  net->body = [=](const at::Tensor& x) mutable {
    return fc->forward(torch::flatten(torch::max_pool2d(conv->forward(x), 2), 1));
  };
  // max_pool of absolute values bounds nothing here, so the bound is that of the norm.
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 3, 10, 6});
  auto module = captured(net, torch::randn({2, 3, 10, 6}));
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), rounding_bound(plan, kF32, kF32));
}

/// Ops that only choose, move or clip values: the same bits.
TEST(Layers, ExactOps) {
  using F = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, F>> cases = {
      {"relu", [](const at::Tensor& x) { return torch::relu(x); }},
      {"relu6", [](const at::Tensor& x) { return torch::nn::functional::relu6(x); }},
      {"max_pool", [](const at::Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); }},
      {"max_pool ceil", [](const at::Tensor& x) { return torch::max_pool2d(x, 2, 2, 0, 1, true); }},
      {"max_pool dilated",
       [](const at::Tensor& x) {
         return torch::max_pool2d(x, {3, 2}, {1, 2}, {1, 0}, 2);
       }},
      {"flatten", [](const at::Tensor& x) { return torch::flatten(torch::max_pool2d(x, 2), 1); }},
      {"view",
       [](const at::Tensor& x) {
         return torch::max_pool2d(x, 2).view({x.size(0), -1});
       }},
      {"sum", [](const at::Tensor& x) { return torch::relu(x + torch::relu(x)); }}};
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({3, 5, 9, 10}) * 4;
  for (const auto& [name, body] : cases) {
    auto net = std::make_shared<Net>();
    net->body = body;
    auto module = captured(net, torch::randn({2, 5, 9, 10}));
    runtime::Engine engine(lower(*module));
    EXPECT_TRUE(torch::equal(run_engine(engine, x), module->forward(x))) << name;
  }
}

/// Means and softmax: a few roundings.
TEST(Layers, MeansAndSoftmax) {
  using F = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, F>> cases = {
      {"avg_pool", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1); }},
      {"avg_pool inside", [](const at::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1, true, false); }},
      {"global",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {1, 1});
       }},
      {"adaptive",
       [](const at::Tensor& x) {
         return torch::adaptive_avg_pool2d(x, {3, 5});
       }},
      {"mean",
       [](const at::Tensor& x) {
         return x.mean({2, 3});
       }},
      {"mean kept",
       [](const at::Tensor& x) {
         return x.mean({-1, -2}, true);
       }},
      {"softmax", [](const at::Tensor& x) { return torch::softmax(torch::flatten(x, 1), -1); }}};
  torch::manual_seed(6);
  const at::Tensor x = torch::randn({3, 4, 9, 10}).abs();
  for (const auto& [name, body] : cases) {
    auto net = std::make_shared<Net>();
    net->body = body;
    auto module = captured(net, torch::randn({2, 4, 9, 10}));
    runtime::Engine engine(lower(*module));
    // Positive terms: the relative error is at most that of 90 additions (and of exp, within 8 units).
    EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), 2 * (4 * 90 + 8) * kF32) << name;
  }
}

TEST(Layers, SeveralResultsAndTheInputItself) {
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", torch::nn::Linear(4, 3));
  net->eval();
  auto module =
      graph::capture(*net,
                     [&](const std::vector<at::Tensor>& inputs) {
                       const at::Tensor y = fc->forward(inputs[0]);
                       return c10::IValue(std::make_tuple(y, torch::relu(y + inputs[1]), inputs[0]));
                     },
                     {torch::randn({2, 4}), torch::randn({2, 3})});
  module->eval();
  runtime::Engine engine(lower(*module));
  const std::vector<at::Tensor> inputs{torch::randn({5, 4}), torch::randn({5, 3})};
  const std::vector<at::Tensor> expected = module->forward_all(inputs);
  const std::vector<at::Tensor> results = run_engine_all(engine, inputs);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_LE(relative_error(results[0], expected[0]), 40 * kF32);
  EXPECT_LE(relative_error(results[1], expected[1]), 40 * kF32);
  EXPECT_TRUE(torch::equal(results[2], inputs[0]));
}

TEST(Layers, ExamplesTakeThePlaceOfTheCapturedSizes) {
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
  net->body = [=](const at::Tensor& x) mutable {
    return torch::adaptive_avg_pool2d(conv->forward(x), {1, 1});
  };
  auto module = captured(net, torch::randn({2, 3, 8, 8}));
  const runtime::Plan plan = lower(module, {torch::randn({1, 3, 12, 10})});
  EXPECT_EQ(plan.tensors[static_cast<size_t>(plan.inputs[0])].shape, (std::vector<int64_t>{-1, 3, 12, 10}));
  const at::Tensor x = torch::randn({2, 3, 12, 10});
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, kF32));
}

TEST(ChannelOps, JoinCutAndShuffle) {
  torch::manual_seed(6);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)));
  auto b = net->add("b", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
  auto c = net->add("c", torch::nn::Conv2d(torch::nn::Conv2dOptions(13, 5, 1)));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor joined = torch::channel_shuffle(torch::cat({a->forward(x), b->forward(x)}, 1), 4);
    const auto halves = joined.chunk(2, 1);
    const auto thirds = joined.split(4, -3);
    const auto uneven = joined.split_with_sizes({1, 11}, 1);
    return c->forward(
        torch::cat({halves[1], thirds[2], uneven[0], joined.narrow(1, 3, 1), joined.slice(1, -1)}, 1));
  };
  expect_close(net, torch::randn({2, 3, 6, 7}), torch::randn({3, 3, 6, 7}), 27 + 13);
}

TEST(ChannelOps, OfRows) {
  torch::manual_seed(7);
  auto net = std::make_shared<Net>();
  auto fc = net->add("fc", torch::nn::Linear(6, 8));
  net->body = [=](const at::Tensor& x) mutable {
    const auto parts = fc->forward(x).chunk(3, -1);  // of 3, 3 and 2
    return torch::cat({parts[2], parts[0]}, 2);
  };
  expect_close(net, torch::randn({2, 5, 6}), torch::randn({3, 5, 6}), 6);
}

TEST(ChannelOps, SizesOfAnExampleReachThem) {
  auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) {
    const auto parts = torch::relu(x).chunk(2, 1);
    return torch::cat({parts[1], parts[0]}, 1);
  };
  auto module = captured(net, torch::randn({2, 4, 6, 6}));
  const at::Tensor x = torch::randn({3, 4, 8, 8});
  runtime::Engine engine(lower(module, {x}));
  EXPECT_TRUE(torch::equal(run_engine(engine, x), net->body(x)));
}

}  // namespace
}  // namespace ulp::test
