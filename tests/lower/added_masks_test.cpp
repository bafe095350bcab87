// Masks of numbers that are added to attention scores: a query that sees no key has LibTorch's result, NaN
// where softmax is written out and zeros from scaled_dot_product_attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kAddedHeads = 2, kAddedDepth = 4, kAddedTokens = 5;

/// Attention of x [n, tokens, features], with numbers that are added to its scores.
struct AddedMask : nn::Module {
  using Rule = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& mask)>;
  Rule rule;
  nn::Linear q = register_module("q", nn::Linear(6, kAddedHeads* kAddedDepth));
  nn::Linear k = register_module("k", nn::Linear(6, kAddedHeads* kAddedDepth));
  nn::Linear v = register_module("v", nn::Linear(6, kAddedHeads* kAddedDepth));
  explicit AddedMask(Rule given) : rule(std::move(given)) {}
  at::Tensor forward(at::Tensor x, at::Tensor mask) {
    const auto heads = [&](nn::Linear& layer) {
      return layer(x).view({x.size(0), kAddedTokens, kAddedHeads, kAddedDepth}).transpose(1, 2);
    };
    const at::Tensor y = rule(heads(q), heads(k), heads(v), mask);
    return y.transpose(1, 2).reshape({x.size(0), kAddedTokens, kAddedHeads * kAddedDepth});
  }
};

/// Some numbers hidden, of the first rows all, of the second ones none.
at::Tensor drawn_mask(std::vector<int64_t> sizes, double hidden) {
  at::Tensor mask = torch::zeros(sizes).masked_fill(torch::rand(sizes) > 0.6, hidden);
  if (mask.dim() > 2) {
    mask[0].fill_(hidden);
    if (mask.size(0) > 1) mask[1].zero_();
    return mask;
  }
  mask[2].fill_(hidden);
  mask[0].zero_();
  return mask;
}

bool same_with_nan(const at::Tensor& got, const at::Tensor& want) {
  return got.isnan().equal(want.isnan()) && torch::allclose(got.nan_to_num(), want.nan_to_num(), 1e-5, 1e-5);
}

AddedMask::Rule written(bool scaled_queries) {
  return [=](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask) {
    const at::Tensor s =
        scaled_queries ? (q * 0.5).matmul(k.transpose(-2, -1)) : q.matmul(k.transpose(-2, -1)) / 2.0;
    return (s + mask).softmax(-1).matmul(v);
  };
}

at::Tensor node_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask) {
  return torch::scaled_dot_product_attention(q, k, v, mask);
}

const std::vector<AddedMask::Rule> kAddedRules = {written(true), written(false), node_of};
constexpr double kNoWeight = -std::numeric_limits<double>::infinity();
const double kHidden[] = {kNoWeight, -1e9, std::numeric_limits<float>::lowest()};

/// Attention steps; the engine has the model's numbers at several batch sizes.
int64_t steps_with(const AddedMask::Rule& rule, const std::function<at::Tensor(int64_t)>& mask) {
  const torch::NoGradGuard no_grad;
  AddedMask model(rule);
  model.eval();
  const auto graph = ulp::capture(model, {torch::randn({2, kAddedTokens, 6}), mask(2)});
  graph->eval();
  const runtime::Plan plan = lower(*graph);
  runtime::Engine engine(plan, {.threads = 2});
  for (const int64_t batch : {1, 3, 8}) {
    const at::Tensor x = torch::randn({batch, kAddedTokens, 6}), m = mask(batch);
    EXPECT_TRUE(same_with_nan(graph->forward_all({x, m})[0], model.forward(x, m)));
    EXPECT_TRUE(same_with_nan(run_engine_all(engine, {x, m})[0], model.forward(x, m))) << listing(plan);
  }
  return std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op);
}

TEST(AddedMasks, OfKeysAreOneStep) {
  torch::manual_seed(21);
  for (const AddedMask::Rule& rule : kAddedRules) {
    for (const double hidden : kHidden) {
      const auto mask = [&](int64_t n) { return drawn_mask({n, 1, 1, kAddedTokens}, hidden); };
      EXPECT_EQ(steps_with(rule, mask), 1) << hidden;
    }
  }
}

TEST(AddedMasks, OfEveryQueryRunAsTheyAreWritten) {
  torch::manual_seed(22);
  for (const AddedMask::Rule& rule : kAddedRules) {
    for (const double hidden : kHidden) {
      for (const int64_t heads : {int64_t{1}, kAddedHeads}) {
        const auto mask = [&](int64_t n) {
          return drawn_mask({n, heads, kAddedTokens, kAddedTokens}, hidden);
        };
        EXPECT_EQ(steps_with(rule, mask), 0) << hidden;
      }
    }
  }
}

/// Masks that the model holds, of which some hide a whole row.
TEST(AddedMasks, OfTheModelItself) {
  torch::manual_seed(23);
  const auto unused = [](int64_t n) { return torch::zeros({n, 1}); };
  for (const AddedMask::Rule& rule : kAddedRules) {
    for (const double hidden : kHidden) {
      const at::Tensor later = torch::full({kAddedTokens, kAddedTokens}, hidden).triu(1);
      const at::Tensor drawn = drawn_mask({kAddedTokens, kAddedTokens}, hidden);
      for (const at::Tensor& mask : {later, drawn}) {
        const auto fixed = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& zeros) {
          return rule(q, k, v, mask) + zeros.view({-1, 1, 1, 1});
        };
        EXPECT_EQ(steps_with(fixed, unused), mask.is_same(later) ? 1 : 0) << hidden;
      }
    }
  }
}

}  // namespace
}  // namespace ulp::test
