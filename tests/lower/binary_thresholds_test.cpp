// Thresholds in the place of chains that end in a sign: against the chain itself, on every sum.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "support.h"
#include "ulp/lower/sign_thresholds.h"
#include "ulp/quant/operators/binary_ops.h"

namespace ulp::test {
namespace {

using lowering::ChannelChain;
using lowering::SignThresholds;

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

/// A scale and a batch norm with gammas of every kind: negative, zero, tiny, and means near the sums.
struct WildNorm {
  at::Tensor factor, gamma, beta, mean, var;  ///< the factor shaped to multiply values of `rank` dimensions

  WildNorm(int64_t channels, double spread, int64_t rank) {
    const at::Tensor scale = torch::rand({channels}) + 0.01;
    std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
    shape[1] = -1;
    factor = scale.view(shape);
    gamma = torch::randn({channels});
    beta = torch::randn({channels});
    mean = torch::randn({channels}) * spread * scale;
    var = torch::rand({channels}) * spread * spread + 1e-3;
    for (int64_t c = 0; c < channels; ++c) {
      if (c % 7 == 1) gamma[c] = 0;
      if (c % 7 == 2) gamma[c] = c % 2 == 0 ? 1e-30 : -1e-30;
      if (c % 7 == 3) beta[c] = 0;
      if (c % 14 == 4) beta[c] = -0.0F;
      if (c % 7 == 5) mean[c] = scale[c] * 3;  // a tie
      if (c % 7 == 5) beta[c] = 0;
    }
  }
  at::Tensor operator()(const at::Tensor& sums) const {
    return at::batch_norm(sums * factor, gamma, beta, mean, var, false, 0.1, 1e-5, false);
  }
};

struct SignCase {
  std::shared_ptr<graph::GraphModule> module;
  ChannelChain chain;
  std::string why;
};

SignCase chain_of(const Body& body, const at::Tensor& example) {
  SignCase made{
      captured_body([=](const at::Tensor& x) { return quant::binarize(body(x)); }, example), {}, {}};
  const graph::Graph& graph = made.module->graph();
  made.chain = lowering::chain_from(graph, graph.inputs().at(0), 1, made.why);
  return made;
}

/// Every sum by itself, in every place of an image of the captured size.
void expect_all_sums(SignCase& made, const at::Tensor& example, int64_t most, bool even) {
  ASSERT_FALSE(made.chain.nodes.empty()) << made.why;
  const SignThresholds found = sum_thresholds(made.module->graph(), made.chain, most, even, made.why);
  ASSERT_TRUE(found.threshold.defined()) << made.why;
  ASSERT_EQ(found.threshold.scalar_type(), at::kInt);
  for (int64_t sum = -most; sum <= most; sum += even ? 2 : 1) {
    at::Tensor x = at::full_like(example, static_cast<double>(sum));
    const at::Tensor signs = made.module->forward(x).transpose(0, 1).flatten(1);
    const at::Tensor expected = at::logical_xor(at::full({1}, sum) >= found.threshold, found.flip);
    ASSERT_TRUE(signs.gt(0).equal(expected.unsqueeze(1).expand_as(signs))) << "sum " << sum;
  }
}

TEST(SumThresholds, AreThoseOfTheGraphForEverySum) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const int64_t most : {9, 64, 288}) {
      for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{2, 28, 5, 3}, {2, 28}}) {
        torch::manual_seed(seed);
        const at::Tensor example = torch::zeros(sizes);
        const WildNorm norm(28, std::sqrt(static_cast<double>(most)), example.dim());
        SignCase plain = chain_of([=](const at::Tensor& x) { return norm(x); }, example);
        expect_all_sums(plain, example, most, /*even=*/true);
        SignCase clamped =
            chain_of([=](const at::Tensor& x) { return at::hardtanh(norm(x)) - 0.125; }, example);
        expect_all_sums(clamped, example, most, /*even=*/false);
      }
    }
  }
}

TEST(SumThresholds, CoverAllKindsOfChannels) {
  torch::manual_seed(4);
  const WildNorm norm(28, 8, 4);
  const at::Tensor example = torch::zeros({1, 28, 2, 2});
  SignCase made = chain_of([=](const at::Tensor& x) { return norm(x); }, example);
  const SignThresholds found = sum_thresholds(made.module->graph(), made.chain, 64, true, made.why);
  EXPECT_TRUE(found.flip.any().item<bool>());
  EXPECT_TRUE(found.threshold.gt(64).any().item<bool>()) << "no channel is always negative";
  EXPECT_TRUE(found.threshold.eq(-64).any().item<bool>()) << "no channel is always positive";
}

TEST(SumThresholds, ASignThatChangesTwiceHasNone) {
  const at::Tensor example = torch::zeros({1, 3, 2, 2});
  SignCase made = chain_of([](const at::Tensor& x) { return x.abs() - 3; }, example);
  EXPECT_FALSE(sum_thresholds(made.module->graph(), made.chain, 9, true, made.why).threshold.defined());
  EXPECT_NE(made.why.find("more than once"), std::string::npos) << made.why;
  // With slopes of both signs, a sum of 0 is where the curve turns.
  const at::Tensor slope = torch::tensor({0.5F, -0.5F, 0.0F});
  SignCase curve = chain_of([=](const at::Tensor& x) { return at::prelu(x, slope) - 1; }, example);
  EXPECT_FALSE(sum_thresholds(curve.module->graph(), curve.chain, 9, true, curve.why).threshold.defined());
}

TEST(SumThresholds, ChainsAreOfChannels) {
  const at::Tensor example = torch::zeros({1, 3, 2, 2}), pixels = torch::rand({1, 3, 2, 2});
  EXPECT_TRUE(chain_of([=](const at::Tensor& x) { return x * pixels; }, example).chain.nodes.empty());
  EXPECT_TRUE(
      chain_of([](const at::Tensor& x) { return at::max_pool2d(x, 2); }, example).chain.nodes.empty());
  EXPECT_TRUE(chain_of([](const at::Tensor& x) { return x + x.mean(); }, example).chain.nodes.empty());
  EXPECT_EQ(chain_of([](const at::Tensor& x) { return at::relu(x) * 2; }, example).chain.nodes.size(), 3U);
}

TEST(NumberThresholds, AreThoseOfTheGraphAroundEachThreshold) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    torch::manual_seed(seed);
    const WildNorm norm(28, 1, 4);
    const at::Tensor example = torch::zeros({2, 28, 3, 3});
    const auto module =
        captured_body([=](const at::Tensor& x) { return quant::binarize(at::hardtanh(norm(x))); }, example);
    const graph::Graph& graph = module->graph();
    const graph::Node* sign = graph.output_node()->args[0].value->producer;
    const ChannelChain chain = lowering::ordered_chain_to(graph, sign);
    ASSERT_EQ(chain.start, graph.inputs().at(0));
    const SignThresholds found = lowering::number_thresholds(graph, chain);
    ASSERT_TRUE(found.threshold.defined());
    const auto expect = [&](const at::Tensor& numbers) {  // [28]
      const at::Tensor x = numbers.view({1, 28, 1, 1}).expand({2, 28, 3, 3}).contiguous();
      const at::Tensor signs = module->forward(x).transpose(0, 1).flatten(1);
      const at::Tensor expected = numbers.ge(found.threshold).logical_xor(found.flip);
      ASSERT_TRUE(signs.gt(0).equal(expected.unsqueeze(1).expand_as(signs))) << numbers;
    };
    const at::Tensor finite = found.threshold.clamp(-kMax, kMax);
    expect(finite);
    const at::Tensor up = at::nextafter(finite, torch::full({28}, kMax)),
                     down = at::nextafter(finite, torch::full({28}, -kMax));
    expect(up);
    expect(down);
    for (const float number : {-kMax, -1.0F, -kTiny, -0.0F, 0.0F, kTiny, 1.0F, kMax})
      expect(torch::full({28}, number));
    for (int i = 0; i < 50; ++i) expect(torch::randn({28}) * 3);
  }
}

TEST(NumberThresholds, OpsThatKeepNoOrderEndTheChain) {
  const at::Tensor example = torch::zeros({1, 3, 2, 2});
  const auto length = [&](const Body& body) {
    const auto module = captured_body([=](const at::Tensor& x) { return quant::binarize(body(x)); }, example);
    const graph::Graph& graph = module->graph();
    return lowering::ordered_chain_to(graph, graph.output_node()->args[0].value->producer).nodes.size();
  };
  EXPECT_EQ(length([](const at::Tensor& x) { return at::relu(x) - 1; }), 3U);
  EXPECT_EQ(length([](const at::Tensor& x) { return x.abs() - 1; }), 2U);
  const at::Tensor slope = torch::full({3}, 0.5F), falling = torch::full({3}, -0.5F);
  EXPECT_EQ(length([=](const at::Tensor& x) { return at::prelu(x, slope); }), 2U);
  EXPECT_EQ(length([=](const at::Tensor& x) { return at::prelu(x, falling); }), 1U);
  EXPECT_EQ(length([](const at::Tensor& x) { return at::max_pool2d(x, 2) * 2; }), 2U);
}

}  // namespace
}  // namespace ulp::test
