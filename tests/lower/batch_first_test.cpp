// Networks that keep time before the batch: the engine gives the graph's numbers and moves nothing for it.
#include <gtest/gtest.h>

#include <span>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;

/// The engine's numbers are the graph's within rounding, at several batch sizes; returns the plan.
runtime::Plan expect_time_first(const std::shared_ptr<Net>& net, const std::vector<int64_t>& item) {
  std::vector<int64_t> example = item;
  example.insert(example.begin(), 3);
  const auto module = captured(net, torch::randn(example));
  const runtime::Plan plan = lower(*module);
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    const torch::NoGradGuard no_grad;
    const Tensor expected = module->forward({x});
    ASSERT_EQ(got.sizes(), expected.sizes());
    EXPECT_LE(relative_error(got, expected), 1e-5) << listing(plan);
  });
  return plan;
}

std::shared_ptr<Net> time_first(const Body& body) {
  auto net = std::make_shared<Net>();
  net->body = [=](const Tensor& x) { return body(x.transpose(0, 1)); };
  return net;
}

void expect_each(std::span<const Body> bodies) {
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    try {
      expect_time_first(time_first(bodies[i]), {5, 6});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(BatchFirst, LayersOverRowsMoveNothing) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  nn::Linear one = net->add("one", nn::Linear(6, 8)), two = net->add("two", nn::Linear(8, 6));
  nn::LayerNorm norm = net->add("norm", nn::LayerNorm(nn::LayerNormOptions({6})));
  net->body = [=](const Tensor& x) mutable {
    const Tensor rows = x.transpose(0, 1);
    return norm(rows + two(torch::relu(one(rows)))).transpose(0, 1);
  };
  const runtime::Plan plan = expect_time_first(net, {5, 6});
  std::string ops;
  for (const runtime::Step& step : plan.steps) ops += std::string(to_string(step.op)) + " ";
  EXPECT_EQ(ops, "linear linear layer_norm ") << listing(plan);
}

TEST(BatchFirst, ArithmeticBroadcastsAsBefore) {
  torch::manual_seed(2);
  const Tensor by_time = torch::randn({5, 1, 6}), by_feature = torch::randn({6}),
               by_row = torch::randn({1, 6});
  const Body bodies[] = {
      [=](const Tensor& x) { return ((x + by_time) * by_feature - by_row).transpose(0, 1); },
      [=](const Tensor& x) { return (x * x.mean(-1, true) + x.sum(0, true)).transpose(0, 1); },
      [=](const Tensor& x) { return (x * x.select(0, 1)).sum(0); },
      [=](const Tensor& x) { return x.amax(0) + x.mean(0); },
      [=](const Tensor& x) { return (x * x.softmax(0)).sum(0) + x.softmax(-1).select(0, 2); },
      [=](const Tensor& x) {
        return torch::where(x > by_time, x, x.flip({0})).permute({1, 2, 0});
      },
  };
  expect_each(bodies);
}

TEST(BatchFirst, HeadsBesideTheBatch) {
  torch::manual_seed(3);
  const auto heads = [](const Tensor& x) { return x.reshape({x.size(0), -1, 2}).transpose(0, 1); };
  const Body bodies[] = {
      [=](const Tensor& x) {  // before they are beside the batch
        const Tensor split = x.reshape({5, -1, 2});
        return (split.tanh() * split + torch::ones({5, 1, 2})).reshape({5, -1, 6}).sum(0);
      },
      [=](const Tensor& x) {  // weights times values, in the words of LibTorch's attention
        const Tensor h = heads(x * 0.5);
        const Tensor weights = torch::softmax(torch::bmm(h, heads(x).transpose(1, 2)), -1);
        return torch::bmm(weights, h).transpose(0, 1).reshape({5, -1, 6}).transpose(0, 1);
      },
      [=](const Tensor& x) {  // with something between scores and softmax
        const Tensor h = heads(x);
        const Tensor scores = torch::bmm(h, h.transpose(1, 2)) * 0.25 + torch::eye(5);
        return torch::bmm(scores.tanh().softmax(2), h).transpose(0, 1).reshape({5, -1, 6}).sum(0);
      },
  };
  expect_each(bodies);
}

TEST(BatchFirst, LibTorchsTransformer) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  nn::TransformerEncoderLayer layer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).activation(torch::kGELU));
  nn::TransformerEncoder encoder =
      net->add("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 2)));
  net->body = [=](const Tensor& x) mutable { return encoder(x.transpose(0, 1)).mean(0); };
  expect_time_first(net, {5, 8});
}

TEST(BatchFirst, WhatMixesItemsIsRefused) {
  const Body bodies[] = {
      [](const Tensor& x) { return x.softmax(1).transpose(0, 1); },
      [](const Tensor& x) { return (x - x.mean(1, true)).transpose(0, 1); },
  };
  for (const Body& body : bodies) {
    const auto module = captured(time_first(body), torch::randn({3, 5, 6}));
    EXPECT_SAYS(error_of([&] { lower(*module); }), "batch");
  }
}

}  // namespace
}  // namespace ulp::test
