// Arithmetic of users' networks as pointwise steps: engine against graph.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "int8_support.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

int64_t pointwise_steps(const runtime::Plan& plan) {
  return std::ranges::count(plan.steps, runtime::Op::pointwise, &runtime::Step::op);
}

constexpr int64_t kAnySteps = -1;

/// Engine and graph agree in f32 on every instruction set, at three batch sizes; the plan has `steps` pointwise steps.
void expect_agreement(const Body& body, const at::Tensor& example, int64_t steps = 1) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*captured_body(body, example));
  if (steps != kAnySteps) {
    EXPECT_EQ(pointwise_steps(plan), steps) << listing(plan);
  }
  each_run(plan, example.sizes().slice(1).vec(), 3, [&](const at::Tensor& x, const at::Tensor& got) {
    const at::Tensor want = body(x).to(at::kFloat);
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-6, true)) << listing(plan) << (got - want).abs().max();
  });
}

struct FunctionCase {
  const char* name;
  Body body;
};

class OneFunction : public ::testing::TestWithParam<FunctionCase> {};

TEST_P(OneFunction, IsLibTorchsWithinRounding) {
  torch::manual_seed(1);
  expect_agreement(GetParam().body, torch::randn({2, 5, 6, 7}));
  expect_agreement(GetParam().body, torch::randn({2, 40}));
}

using T = at::Tensor;
#define ULP_CASE(name, ...)                      \
  FunctionCase {                                 \
    name, [](const T& x) { return __VA_ARGS__; } \
  }
INSTANTIATE_TEST_SUITE_P(
    Ops, OneFunction,
    ::testing::Values(
        ULP_CASE("add_alpha", at::add(x, 1.5, 2)), ULP_CASE("sub", x - 2), ULP_CASE("rsub", 1 - x),
        ULP_CASE("rsub_alpha", at::rsub(x, 3, 2)), ULP_CASE("mul", x * 0.5), ULP_CASE("square", x* x),
        ULP_CASE("div", x / 3), ULP_CASE("divided", 2 / x), ULP_CASE("div_floor", at::div(x, 0.7, "floor")),
        ULP_CASE("div_trunc", at::div(x, 0.7, "trunc")), ULP_CASE("pow2", x.pow(2)),
        ULP_CASE("pow3", x.pow(3)), ULP_CASE("pow_half", x.abs().pow(0.5)),
        ULP_CASE("pow_any", x.abs().pow(1.3)), ULP_CASE("pow_of", at::pow(2.0, x)),
        ULP_CASE("maximum", at::maximum(x, x * 0.1)), ULP_CASE("minimum", at::minimum(x, -x)),
        ULP_CASE("gt", (x > 0.5).to(at::kFloat)), ULP_CASE("eq", (x == x).to(at::kFloat)),
        ULP_CASE("logic", at::logical_and(x > 0, at::logical_not(x > 1)).to(at::kFloat)),
        ULP_CASE("bits_of_truth", ((x > -1) & (x < 1)).to(at::kFloat)),
        ULP_CASE("or_of_truth", ((x > 1) | (x < -1)).to(at::kFloat)),
        ULP_CASE("xor_of_truth", ((x > -1) ^ (x > 1)).to(at::kFloat)),
        ULP_CASE("not_of_truth", (~(x > 0)).to(at::kFloat)),
        ULP_CASE("bitwise_and", at::bitwise_and(x > -1, x < 1).to(at::kFloat)),
        ULP_CASE("isinf", at::isinf(x.round().reciprocal()).to(at::kFloat)),
        ULP_CASE("where", at::where(x > 0, x, x * 0.2)), ULP_CASE("masked_fill", x.masked_fill(x < 0, -1)),
        ULP_CASE("addcmul", at::addcmul(x, x, x, 0.5)),
        ULP_CASE("addcdiv", at::addcdiv(x, x, x.abs() + 1, 2)), ULP_CASE("lerp", at::lerp(x, x* x, 0.3)),
        ULP_CASE("neg", -x), ULP_CASE("abs", x.abs()), ULP_CASE("sign", x.sign()),
        ULP_CASE("reciprocal", x.reciprocal()), ULP_CASE("sqrt", x.abs().sqrt()),
        ULP_CASE("rsqrt", (x * x + 1e-5).rsqrt()), ULP_CASE("exp", x.exp()), ULP_CASE("expm1", x.expm1()),
        ULP_CASE("log", x.abs().log()), ULP_CASE("log1p", x.abs().log1p()), ULP_CASE("log2", x.abs().log2()),
        ULP_CASE("sin", x.sin()), ULP_CASE("cos", x.cos()), ULP_CASE("floor", x.floor()),
        ULP_CASE("ceil", x.ceil()), ULP_CASE("round", x.round()), ULP_CASE("trunc", x.trunc()),
        ULP_CASE("erf", x.erf()), ULP_CASE("mish", at::mish(x)), ULP_CASE("softplus", at::softplus(x)),
        ULP_CASE("softplus_beta", at::softplus(x, 2, 5)), ULP_CASE("leaky_relu", at::leaky_relu(x, 0.2)),
        ULP_CASE("elu", at::elu(x)), ULP_CASE("elu_alpha", at::elu(x, 0.5)), ULP_CASE("selu", at::selu(x)),
        ULP_CASE("celu", at::celu(x, 0.7)), ULP_CASE("log_sigmoid", at::log_sigmoid(x)),
        ULP_CASE("softsign", x / (x.abs() + 1)), ULP_CASE("hardshrink", at::hardshrink(x, 0.6)),
        ULP_CASE("softshrink", at::softshrink(x, 0.6)), ULP_CASE("threshold", at::threshold(x, 0.1, 20)),
        ULP_CASE("clamp", x.clamp(-1, 2)), ULP_CASE("hardtanh", at::hardtanh(x, -2, 2)),
        ULP_CASE("clamp_max", x.clamp_max(0.5)), ULP_CASE("isnan", at::isnan(x.log()).to(at::kFloat)),
        ULP_CASE("to_int", x.to(at::kLong).to(at::kFloat) * 0.5),
        ULP_CASE("remainder", at::remainder(x, 1.7)), ULP_CASE("asin", at::asin(x.clamp(-3, 3) / 3)),
        ULP_CASE("acos", at::acos(x.clamp(-3, 3) / 3)), ULP_CASE("sinh", at::sinh(x)),
        ULP_CASE("cosh", at::cosh(x)), ULP_CASE("asinh", at::asinh(x)),
        ULP_CASE("asinh_of_large", at::asinh(x * 1e30)),
        ULP_CASE("asinh_of_small", at::asinh(x * 1e-30) * 1e30), ULP_CASE("acosh", at::acosh(x.abs() + 1)),
        ULP_CASE("acosh_of_large", at::acosh(x.abs() * 1e30)), ULP_CASE("atanh", at::atanh(x * 0.2))),
    [](const auto& it) { return std::string(it.param.name); });
#undef ULP_CASE

TEST(PointwiseLowering, AWholeExpressionIsOneStep) {
  const Body swiglu = [](const T& x) {
    const T a = x * 2 - 1;
    return a * torch::sigmoid(a) + torch::tanh(x).square() / (x.abs() + 1);
  };
  expect_agreement(swiglu, torch::randn({2, 3, 8, 8}));
}

TEST(PointwiseLowering, ConstantsBroadcastFromEitherSide) {
  torch::manual_seed(3);
  const T channels = torch::randn({5, 1, 1}), row = torch::randn({7}), map = torch::randn({6, 7}),
          all = torch::randn({1, 5, 6, 7});
  expect_agreement([=](const T& x) { return (x * channels + row) * map - all; }, torch::randn({2, 5, 6, 7}));
  expect_agreement([=](const T& x) { return x * row; }, torch::randn({2, 4, 7}));
}

TEST(PointwiseLowering, SqueezeAndExcite) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
  auto squeeze = net->add("squeeze", nn::Conv2d(nn::Conv2dOptions(8, 4, 1)));
  auto excite = net->add("excite", nn::Conv2d(nn::Conv2dOptions(4, 8, 1)));
  net->body = [=](const T& x) mutable {
    const T y = at::silu(conv->forward(x));
    const T gate =
        torch::sigmoid(excite->forward(at::silu(squeeze->forward(at::adaptive_avg_pool2d(y, {1, 1})))));
    return y * gate;
  };
  const T x = torch::randn({3, 3, 9, 9});
  const auto graph = captured(net, x);
  const torch::NoGradGuard no_grad;
  const T want = graph->forward({x});
  for (const auto precision : {LowerOptions::Precision::f32, LowerOptions::Precision::bf16}) {
    runtime::Engine engine(lower(*graph, {.precision = precision}));
    const bool bf16 = precision == LowerOptions::Precision::bf16;
    EXPECT_LE(relative_error(run_engine(engine, x), want), bf16 ? 32 * kBF16 : 64 * kF32);
  }
}

TEST(PointwiseLowering, AValueThatOthersReadIsAStepOfItsOwn) {
  expect_agreement(
      [](const T& x) {
        const T a = x * 2;
        return torch::softmax(a, -1) + a;
      },
      torch::randn({2, 9}), 1);  // the sum of two values is the step `add`
}

TEST(PointwiseLowering, SumsOfTruthAreTruthAndRoundingToDecimalsIsRefused) {
  expect_agreement([](const T& x) { return ((x > 0) + (x > 1)).to(at::kFloat) * 3; }, torch::randn({2, 9}));
  EXPECT_NE(error_of([] {
              lower(*captured_body([](const T& x) { return x.round(2); }, torch::randn({2, 9})));
            }).find("whole numbers"),
            std::string::npos);
}

TEST(PointwiseLowering, BitsOfIntegersWithANumber) {
  const auto whole = [](const T& x) { return (x * 1000).to(at::kLong); };
  for (const int64_t mask : {0x0f3, 12, 0x30f, 1, 0, -8, -1}) {
    expect_agreement([=](const T& x) { return at::bitwise_and(whole(x), mask).to(at::kFloat); },
                     torch::randn({2, 40}), kAnySteps);
    expect_agreement([=](const T& x) { return at::bitwise_or(whole(x), mask).to(at::kFloat); },
                     torch::randn({2, 40}), kAnySteps);
    expect_agreement([=](const T& x) { return at::bitwise_xor(whole(x), mask).to(at::kFloat); },
                     torch::randn({2, 40}), kAnySteps);
  }
  expect_agreement([=](const T& x) { return at::bitwise_not(whole(x)).to(at::kFloat); },
                   torch::randn({2, 40}), kAnySteps);
  expect_agreement([](const T& x) { return at::_to_copy(x, at::kLong).to(at::kFloat) * 0.5; },
                   torch::randn({2, 40}), kAnySteps);
}

TEST(PointwiseLowering, BitsOfIntegersThatF32DoesNotHoldAreRefused) {
  const auto refusal = [](const Body& body) {
    return error_of([&] { lower(*captured_body(body, torch::randn({2, 9}))); });
  };
  const auto whole = [](const T& x) { return x.to(at::kLong); };
  EXPECT_SAYS(refusal([=](const T& x) { return at::bitwise_and(whole(x), whole(x)).to(at::kFloat); }),
              "integers with a number");
  EXPECT_SAYS(refusal([=](const T& x) { return at::bitwise_and(whole(x), 0x55).to(at::kFloat); }),
              "two runs");
  EXPECT_SAYS(refusal([=](const T& x) { return at::bitwise_or(whole(x) * whole(x), 3).to(at::kFloat); }),
              "2^24");
}

TEST(PointwiseLowering, SumsThatTheStepForSumsDoesNotDoBetweenInt8Layers) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(6);
  const std::vector<Body> bodies = {[](const T& y) { return y + 0.5; },
                                    [](const T& y) { return at::add(y, y * y, 2); },
                                    [](const T& y) { return y + y.mean(-1, true); }};
  for (const Body& body : bodies) {
    auto net = std::make_shared<Net>();
    auto before = net->add("before", nn::Linear(6, 6)), after = net->add("after", nn::Linear(6, 3));
    net->body = [=](const T& x) mutable { return after->forward(body(before->forward(x))); };
    const T x = torch::randn({16, 6});
    const auto prepared = quant::prepare(captured(net, x), quant::Recipe::x86_int8());
    prepared->forward(x);
    const auto quantized = quant::convert(prepared);
    expect_steps_as_graph(*quantized, lower(*quantized), x);
  }
}

TEST(PointwiseLowering, PreluHasASlopeForEachChannel) {
  auto net = std::make_shared<Net>();
  auto prelu = net->add("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(5)));
  const torch::NoGradGuard no_grad;
  prelu->weight.uniform_(0.1, 0.9);
  net->body = [=](const T& x) mutable { return prelu->forward(x); };
  for (const T& x : {torch::randn({3, 5, 4, 4}), torch::randn({3, 5, 6}), torch::randn({3, 5})}) {
    runtime::Engine engine(lower(*captured(net, x)));
    EXPECT_LE(relative_error(run_engine(engine, x), prelu->forward(x)), kF32);
  }
}

}  // namespace
}  // namespace ulp::test
