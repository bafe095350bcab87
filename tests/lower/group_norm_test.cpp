// Group norm and instance norm: the engine against LibTorch, in f32, bf16 and between int8 layers.
#include <gtest/gtest.h>

#include "error_of.h"
#include "int8_support.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

/// The engine's result is float64's within 8 roundings of the largest number, on every instruction set.
void expect_exact(const Body& body, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*captured_body(body, x));
  const at::Tensor expected = body(x.to(torch::kDouble));
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
    const at::Tensor got = run_engine(engine, x);
    EXPECT_LE(relative_error(got, expected), 8 * kF32) << x.sizes() << listing(plan);
    EXPECT_LE(relative_error(got, body(x)), 12 * kF32) << x.sizes();
  }
}

TEST(GroupNorm, OfEveryRankIsLibTorchsWithinRounding) {
  torch::manual_seed(1);
  const at::Tensor weight = torch::randn(12), bias = torch::randn(12);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 12, 7}, {3, 12, 9, 5}, {2, 12, 3, 4, 5}, {1, 12, 130, 120}}) {
    const at::Tensor x = torch::randn(sizes) * 3 + 1;
    for (const int64_t groups : {1, 3, 12}) {
      expect_exact([=](const at::Tensor& v) { return at::group_norm(v, groups); }, x);
    }
  }
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 12, 7}, {3, 12, 9, 5}}) {
    auto net = std::make_shared<Net>();
    auto norm = net->add("norm", nn::GroupNorm(nn::GroupNormOptions(4, 12).eps(0.1)));
    torch::NoGradGuard no_grad;
    norm->weight.copy_(weight);
    norm->bias.copy_(bias);
    net->body = [=](const at::Tensor& x) mutable { return norm->forward(x); };
    const at::Tensor x = torch::randn(sizes) - 2;
    const runtime::Plan plan = lower(*captured(net, x));
    EXPECT_EQ(plan.steps[plan.steps.size() > 1 ? 1 : 0].name, "norm") << listing(plan);
    runtime::Engine engine(plan);
    const at::Tensor expected =
        at::group_norm(x.to(torch::kDouble), 4, weight.to(torch::kDouble), bias.to(torch::kDouble), 0.1);
    EXPECT_LE(relative_error(run_engine(engine, x), expected), 8 * kF32);
  }
}

TEST(GroupNorm, InstanceNormIsOneGroupAChannel) {
  torch::manual_seed(2);
  for (const bool affine : {false, true}) {
    auto net = std::make_shared<Net>();
    auto norm = net->add("norm", nn::InstanceNorm2d(nn::InstanceNorm2dOptions(6).affine(affine)));
    const torch::NoGradGuard no_grad;
    if (affine) norm->weight.uniform_(-1, 1), norm->bias.uniform_(-1, 1);
    net->body = [=](const at::Tensor& x) mutable { return norm->forward(x); };
    const at::Tensor x = torch::randn({3, 6, 11, 13}) + 1;
    const runtime::Plan plan = lower(*captured(net, x));
    runtime::Engine engine(plan);
    EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), 12 * kF32) << listing(plan);
  }
  expect_exact([](const at::Tensor& x) { return at::instance_norm(x, {}, {}, {}, {}, true, 0, 1e-5, true); },
               torch::randn({2, 5, 40}));
}

TEST(GroupNorm, BetweenLayersInF32Bf16AndInt8) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)));
  auto one = net->add("one", nn::GroupNorm(nn::GroupNormOptions(4, 16)));
  auto b = net->add("b", nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
  auto two = net->add("two", nn::GroupNorm(nn::GroupNormOptions(1, 16)));
  auto c = net->add("c", nn::Conv2d(nn::Conv2dOptions(16, 4, 1)));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::relu(one->forward(a->forward(x)));
    return c->forward(torch::relu(two->forward(b->forward(y))) + y);
  };
  const at::Tensor x = torch::randn({4, 3, 9, 10});
  const auto module = captured(net, x);
  const at::Tensor expected = module->forward(x);
  for (const bool bf16 : {false, true}) {
    const runtime::Plan plan =
        lower(*module, {.precision = bf16 ? LowerOptions::Precision::bf16 : LowerOptions::Precision::f32});
    runtime::Engine engine(plan);
    EXPECT_LE(relative_error(run_engine(engine, x), expected),
              rounding_bound(plan, kF32, bf16 ? 2 * kBF16 : kF32))
        << listing(plan);
  }
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 3; ++i) prepared->forward(torch::randn_like(x));
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  expect_steps_as_graph(*quantized, plan, x);
  runtime::Engine engine(plan);
  EXPECT_GE(quant::quantization_error(expected, run_engine(engine, x)).sqnr_db, 28) << listing(plan);
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::conv) continue;
    EXPECT_EQ(info(plan, step.inputs[0]).type, runtime::DataType::u8) << listing(plan);
  }
}

TEST(GroupNorm, BetweenConvolutionsOfSequences) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Conv1d(nn::Conv1dOptions(3, 8, 3).padding(1)));
  auto norm = net->add("norm", nn::GroupNorm(nn::GroupNormOptions(2, 8)));
  auto b = net->add("b", nn::Conv1d(nn::Conv1dOptions(8, 4, 3)));
  net->body = [=](const at::Tensor& x) mutable {
    return b->forward(torch::relu(norm->forward(a->forward(x))));
  };
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 3, 25});
  const runtime::Plan plan = lower(*captured(net, x));
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, kF32))
      << listing(plan);
}

TEST(GroupNorm, WhatTheEngineHasNotIsNamed) {
  const auto lowered = [](const Body& body, const at::Tensor& x) { lower(*captured_body(body, x)); };
  EXPECT_ERROR(lowered([](const at::Tensor& x) { return at::group_norm(x, 2); }, torch::randn({2, 4})),
               "expected an input [N, C, ...] of 3 or more dimensions");
  const at::Tensor mean = torch::zeros(4), variance = torch::ones(4);
  const auto by_statistics = [=](const at::Tensor& x) {
    return at::instance_norm(x, {}, {}, mean, variance, false, 0.1, 1e-5, true);
  };
  EXPECT_ERROR(lowered(by_statistics, torch::randn({2, 4, 5})), "without running statistics");
}

}  // namespace
}  // namespace ulp::test
