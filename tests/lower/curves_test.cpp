// The curves of the table of activations: the engine against LibTorch, alone and behind layers.
#include <gtest/gtest.h>

#include <algorithm>

#include "exact_activation.h"
#include "int8_support.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

/// LibTorch's call of each curve.
const std::vector<std::pair<Activation, Body>>& calls() {
  static const std::vector<std::pair<Activation, Body>> all = {
      {Activation::gelu, [](const at::Tensor& x) { return at::gelu(x, "none"); }},
      {Activation::gelu_tanh, [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {Activation::tanh, [](const at::Tensor& x) { return at::tanh(x); }},
      {Activation::hardsigmoid, [](const at::Tensor& x) { return at::hardsigmoid(x); }},
      {Activation::hardswish, [](const at::Tensor& x) { return at::hardswish(x); }},
      {Activation::sigmoid, [](const at::Tensor& x) { return at::sigmoid(x); }},
      {Activation::silu, [](const at::Tensor& x) { return at::silu(x); }}};
  return all;
}

/// The only step that ends in the activation; null where there are more or none.
const runtime::Step* only_step_with(const runtime::Plan& plan, Activation activation) {
  const auto has = [&](const runtime::Step& step) { return activation_of(step) == activation; };
  if (std::ranges::count_if(plan.steps, has) != 1) return nullptr;
  return &*std::ranges::find_if(plan.steps, has);
}

TEST(Curves, EachHasItsCallHere) {
  ASSERT_EQ(calls().size(), all_curves().size());
  for (size_t i = 0; i < calls().size(); ++i) EXPECT_EQ(calls()[i].first, all_curves()[i]);
}

TEST(Curves, AloneTheyAreLibTorchsWithinRounding) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({3, 5, 9, 10}) * 4;
  for (const auto& [curve, call] : calls()) {
    auto net = std::make_shared<Net>();
    net->body = call;
    const runtime::Plan plan = lower(*captured(net, torch::randn({2, 5, 9, 10})));
    ASSERT_NE(only_step_with(plan, curve), nullptr) << listing(plan);
    for (const kernels::Isa isa : kernels::available_isas()) {
      runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
      EXPECT_LE(relative_error(run_engine(engine, x), call(x)), 4 * kF32) << to_string(curve);
    }
  }
}

TEST(Curves, OfClampsAreLibTorchsBits) {
  const at::Tensor x =
      torch::cat({torch::linspace(-8, 8, 100001), torch::tensor({-3.0F, 3.0F, -0.0F, 1e-30F, 1e30F, -1e30F})})
          .reshape({1, -1});
  for (const Body& call : {Body([](const at::Tensor& v) { return at::hardswish(v); }),
                           Body([](const at::Tensor& v) { return at::hardsigmoid(v); })}) {
    auto net = std::make_shared<Net>();
    net->body = call;
    runtime::Engine engine(lower(*captured(net, x)));
    EXPECT_TRUE(torch::equal(run_engine(engine, x), call(x)));
  }
}

/// Layers end in them, whatever type their results have.
TEST(Curves, BehindLayers) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  for (const auto& [curve, call] : calls()) {
    auto net = std::make_shared<Net>();
    auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    auto fc = net->add("fc", nn::Linear(8 * 30, 20));
    auto last = net->add("last", nn::Linear(20, 20));
    net->body = [=, &call = call](const at::Tensor& x) mutable {
      return last->forward(call(fc->forward(torch::flatten(torch::relu(conv->forward(x)), 1))));
    };
    auto image = std::make_shared<Net>();
    auto alone = image->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    image->body = [=, &call = call](const at::Tensor& x) mutable { return call(alone->forward(x)); };
    const at::Tensor x = torch::randn({3, 3, 5, 6}) * 2;
    for (const bool bf16 : {false, true}) {
      const LowerOptions options{.precision =
                                     bf16 ? LowerOptions::Precision::bf16 : LowerOptions::Precision::f32};
      const runtime::Plan plan = lower(*captured(net, x), options);
      const runtime::Plan behind_conv = lower(*captured(image, x), options);
      ASSERT_NE(only_step_with(plan, curve), nullptr) << listing(plan);
      ASSERT_NE(only_step_with(behind_conv, curve), nullptr) << listing(behind_conv);
      EXPECT_EQ(only_step_with(plan, curve)->op, runtime::Op::linear);
      EXPECT_EQ(only_step_with(behind_conv, curve)->op, runtime::Op::conv);
      EXPECT_EQ(info(plan, only_step_with(plan, curve)->output).type,
                bf16 ? runtime::DataType::bf16 : runtime::DataType::f32);
      const double epsilon = bf16 ? 2 * kBF16 : kF32;
      for (const kernels::Isa isa : kernels::available_isas()) {
        runtime::Engine one(plan, {.isa = kernels::to_string(isa)});
        runtime::Engine two(behind_conv, {.isa = kernels::to_string(isa)});
        EXPECT_LE(relative_error(run_engine(one, x), net->body(x)), rounding_bound(plan, kF32, epsilon))
            << to_string(curve);
        EXPECT_LE(relative_error(run_engine(two, x), image->body(x)),
                  rounding_bound(behind_conv, kF32, epsilon))
            << to_string(curve);
      }
    }
  }
}

TEST(Curves, BehindInt8LayersTheGraphIsFollowedStepByStep) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (const auto& [curve, call] : calls()) {
    auto net = std::make_shared<Net>();
    auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    auto fc = net->add("fc", nn::Linear(8 * 30, 20));
    auto last = net->add("last", nn::Linear(20, 10));
    net->body = [=, &call = call](const at::Tensor& x) mutable {
      return last->forward(call(fc->forward(torch::flatten(call(conv->forward(x)), 1))));
    };
    const at::Tensor x = torch::randn({8, 3, 5, 6}) * 2;
    const auto prepared = quant::prepare(captured(net, x), quant::Recipe::x86_int8());
    prepared->forward(x);
    const auto quantized = quant::convert(prepared);
    const runtime::Plan plan = lower(*quantized);
    expect_steps_as_graph(*quantized, plan, x);
    for (const runtime::Step& step : plan.steps) {
      if (step.op != runtime::Op::conv && step.op != runtime::Op::linear) continue;
      EXPECT_EQ(info(plan, step.inputs[0]).type, runtime::DataType::u8) << listing(plan);
      EXPECT_EQ(info(plan, step.output).type,
                step.name == "last" ? runtime::DataType::f32 : runtime::DataType::u8)
          << listing(plan);
      const Activation expected = step.name == "last" ? Activation::none : curve;
      EXPECT_EQ(activation_of(step), expected) << listing(plan);
    }
  }
}

}  // namespace
}  // namespace ulp::test
