#include "ulp/amp/autocast/keras_policy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "constants.h"
#include "error_of.h"
#include "ulp/amp/autocast/explain.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using ulp::amp::apply_policy;
using ulp::amp::find_dtype_policy;
using ulp::test::error_of;

struct ConvBlock : torch::nn::Module {
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(4, 4, 3));
  torch::nn::BatchNorm2d bn = register_module("bn", torch::nn::BatchNorm2d(4));
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(bn(conv(x))); }
};

struct SoftmaxNet : torch::nn::Module {
  std::shared_ptr<ConvBlock> body = register_module("body", std::make_shared<ConvBlock>());
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4 * 6 * 6, 3));
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::softmax(head(body->forward(x).flatten(1)), 1);
  }
};

/// The same with the casts by hand; the softmax and the head in `last`.
torch::Tensor by_hand(SoftmaxNet& net, const torch::Tensor& x, at::ScalarType body, at::ScalarType last) {
  const auto conv = torch::conv2d(x.to(body), net.body->conv->weight.to(body), net.body->conv->bias.to(body));
  const auto h = torch::relu(net.body->bn(conv)).flatten(1);
  return torch::softmax(torch::linear(h.to(last), net.head->weight.to(last), net.head->bias.to(last)), 1);
}

void expect_equal_training(SoftmaxNet& net, ulp::graph::GraphModule& captured, at::ScalarType body,
                           at::ScalarType last) {
  const auto x = torch::rand({5, 4, 8, 8});
  net.train();
  captured.train();
  const auto weights = torch::rand({5, 3});
  (by_hand(net, x, body, last).to(kFloat) * weights).sum().backward();
  std::vector<torch::Tensor> wanted;
  for (const auto& p : net.parameters()) wanted.push_back(p.grad().clone());
  net.zero_grad();
  const auto y = captured.forward(x);
  EXPECT_EQ(y.scalar_type(), last);
  (y.to(kFloat) * weights).sum().backward();
  for (size_t i = 0; i < wanted.size(); ++i) {  // parameters are shared
    EXPECT_TRUE(torch::equal(net.parameters()[i].grad(), wanted[i])) << i;
    EXPECT_EQ(wanted[i].scalar_type(), kFloat);
  }
  net.eval();
  captured.eval();
  EXPECT_TRUE(torch::equal(captured.forward(x), by_hand(net, x, body, last)));
}

TEST(KerasPolicy, TheWholeModelInMixedPrecision) {
  SoftmaxNet net;
  const auto captured = ulp::capture(net, {torch::rand({2, 4, 8, 8})});
  apply_policy(*captured, {{"*", "mixed_bfloat16"}});
  expect_equal_training(net, *captured, kBF16, kBF16);
}

TEST(KerasPolicy, TheFirstRuleThatMatchesWins) {
  SoftmaxNet net;
  const auto captured = ulp::capture(net, {torch::rand({2, 4, 8, 8})});
  // The softmax is the model's own: its path is "", which only "*" matches.
  const auto report =
      apply_policy(*captured, {{"body", "mixed_bfloat16"}, {"body.conv", "float32"}, {"*", "float32"}});
  expect_equal_training(net, *captured, kBF16, kFloat);
  ASSERT_EQ(report.near_misses.size(), 1u);
  EXPECT_EQ(report.near_misses[0], "'body.conv' decides nothing: rules before it do");
  ASSERT_FALSE(report.changes.empty());
  bool found = false;
  for (const auto& change : report.changes)
    found = found || change == "body.conv: mixed_bfloat16, casts written: 3";
  EXPECT_TRUE(found) << report.changes[0];
}

TEST(KerasPolicy, WhatNoRuleMatchesStaysAsItIs) {
  SoftmaxNet net;
  const auto captured = ulp::capture(net, {torch::rand({2, 4, 8, 8})});
  apply_policy(*captured, {{"head", "mixed_bfloat16"}});
  const auto why = ulp::amp::explain(*captured, {torch::rand({2, 4, 8, 8})});
  for (const auto& row : why.rows) {
    if (row.op == "aten::conv2d") {
      EXPECT_EQ(row.in[0], kFloat);
    }
    if (row.op == "aten::linear") {
      EXPECT_EQ(row.in, (std::vector<at::ScalarType>(3, kBF16)));
    }
  }
  EXPECT_EQ(why.casts(), 3);
}

TEST(KerasPolicy, VariablesAreStoredInTheVariableDtype) {
  SoftmaxNet net;
  const auto captured = ulp::capture(net, {torch::rand({2, 4, 8, 8})});
  apply_policy(*captured, {{"head", "bfloat16"}, {"*", "mixed_bfloat16"}});
  EXPECT_EQ(net.head->weight.scalar_type(), kBF16);
  EXPECT_EQ(net.body->conv->weight.scalar_type(), kFloat);
  EXPECT_EQ(net.body->bn->running_mean.scalar_type(), kFloat);
  captured->forward(torch::rand({3, 4, 8, 8})).to(kFloat).square().sum().backward();
  EXPECT_EQ(net.head->weight.grad().scalar_type(), kBF16);
  EXPECT_EQ(net.body->conv->weight.grad().scalar_type(), kFloat);
}

TEST(KerasPolicy, AValueIsCastOncePerDtype) {
  struct Twice : torch::nn::Module {
    torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 4));
    torch::Tensor forward(const torch::Tensor& x) { return a(x) + a(x * 2); }
  } net;
  const auto captured = ulp::capture(net, {torch::rand({2, 4})});
  apply_policy(*captured, {{"*", "mixed_bfloat16"}});
  const auto x = torch::rand({3, 4});
  EXPECT_EQ(ulp::amp::explain(*captured, {x}).casts(), 3);  // x, the weight and the bias
  captured->forward(x).sum().backward();
  EXPECT_TRUE(torch::equal(net.a->bias.grad(), torch::full({4}, 6.0)));
}

TEST(KerasPolicy, AnEmbeddingCastsWhatItFound) {
  struct Words : torch::nn::Module {
    torch::nn::Embedding words = register_module("words", torch::nn::Embedding(100, 4));
    torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 2));
    torch::Tensor forward(const torch::Tensor& ids) { return head(words(ids)); }
  } net;
  const auto ids = torch::randint(0, 100, {2, 5});
  const auto captured = ulp::capture(net, {ids});
  apply_policy(*captured, {{"*", "mixed_bfloat16"}});
  EXPECT_EQ(captured->forward(ids).scalar_type(), kBF16);
  const auto why = ulp::amp::explain(*captured, {ids});
  EXPECT_EQ(why.rows.at(0).op, "aten::embedding");
  EXPECT_EQ(why.rows.at(0).out, std::vector<at::ScalarType>{kFloat});
  EXPECT_EQ(why.rows.at(1).cast_bytes, 2 * 5 * 4 * (4 + 2));
}

TEST(KerasPolicy, Fp64ModelsAreLeftAlone) {
  SoftmaxNet net;
  net.to(torch::kDouble);
  const auto x = torch::rand({2, 4, 8, 8}, torch::kDouble);
  const auto captured = ulp::capture(net, {x});
  apply_policy(*captured, {{"*", "bfloat16"}});
  EXPECT_EQ(captured->forward(x).scalar_type(), torch::kDouble);
}

TEST(KerasPolicy, UnknownPathsAndPoliciesAreErrorsThatChangeNothing) {
  SoftmaxNet net;
  const auto x = torch::rand({2, 4, 8, 8});
  const auto captured = ulp::capture(net, {x});
  EXPECT_EQ(error_of([&] {
              apply_policy(*captured, {{"*", "bfloat16"}, {"bdoy", "float32"}});
            }),
            "[amp.apply_policy] expected the path of a module of the model (body, body.bn, body.conv, head), "
            "got 'bdoy'");
  EXPECT_EQ(
      error_of([&] {
        apply_policy(*captured, {{"*", "mixed_float8"}});
      }),
      "[amp.find_dtype_policy] expected one of float32, mixed_float16, mixed_bfloat16, float16, bfloat16, "
      "got 'mixed_float8'");
  EXPECT_EQ(captured->forward(x).scalar_type(), kFloat);
  EXPECT_EQ(net.head->weight.scalar_type(), kFloat);
}

TEST(KerasPolicy, PoliciesAreKerass) {
  EXPECT_EQ(find_dtype_policy("mixed_float16").compute, torch::kHalf);
  EXPECT_EQ(find_dtype_policy("mixed_float16").variable, kFloat);
  EXPECT_EQ(find_dtype_policy("bfloat16").variable, kBF16);
  EXPECT_EQ(ulp::amp::dtype_policies().size(), 5u);
}

}  // namespace
