// Resizing, transposed convolutions, batch norms that fold into nothing: the engine against LibTorch, float
// and 8 bits.
#include <gtest/gtest.h>

#include "int8_support.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {
namespace {

using runtime::DataType;
namespace nn = torch::nn;

/// f32 within rounding and bf16 within bf16's, on every instruction set.
void expect_as_libtorch(graph::GraphModule& module, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const at::Tensor expected = module.forward({x});
  const runtime::Plan f32 = lower(module), bf16 = lower(module, {.precision = LowerOptions::Precision::bf16});
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine exact(f32, {.isa = kernels::to_string(isa)}),
        rounded(bf16, {.isa = kernels::to_string(isa)});
    EXPECT_LE(relative_error(run_engine(exact, x), expected), rounding_bound(f32, kF32, kF32))
        << listing(f32);
    EXPECT_LE(relative_error(run_engine(rounded, x), expected), rounding_bound(bf16, kF32, 2 * kBF16));
  }
}

/// Quantized after training: every step as the graph's, all layers on integers, and the whole near the float
/// model.
runtime::Plan expect_quantized(const std::shared_ptr<graph::GraphModule>& module, const at::Tensor& x,
                               double floor_db) {
  const torch::NoGradGuard no_grad;
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 3; ++i) prepared->forward(torch::randn_like(x));
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  expect_steps_as_graph(*quantized, plan, x);
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::conv) continue;
    EXPECT_EQ(info(plan, step.inputs[0]).type, DataType::u8) << listing(plan);
  }
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
    EXPECT_GE(quant::quantization_error(module->forward(x), run_engine(engine, x)).sqnr_db, floor_db)
        << listing(plan);
  }
  return plan;
}

TEST(Resize, NearestGivesTheSameBits) {
  for (const std::vector<int64_t>& size : {std::vector<int64_t>{10, 14}, {3, 20}, {7, 9}, {1, 1}, {5, 7}}) {
    auto module = captured_body([=](const at::Tensor& x) { return at::upsample_nearest2d(x, size); },
                                torch::randn({2, 3, 5, 7}));
    const at::Tensor x = torch::randn({3, 3, 5, 7});
    runtime::Engine engine(lower(*module));
    EXPECT_TRUE(run_engine(engine, x).equal(module->forward(x))) << size;
  }
}

TEST(Resize, BilinearWithBothConventions) {
  torch::manual_seed(1);
  for (const bool align : {false, true}) {
    for (const std::vector<int64_t>& size : {std::vector<int64_t>{10, 14}, {3, 20}, {7, 9}, {1, 1}, {5, 7}}) {
      auto module =
          captured_body([=](const at::Tensor& x) { return at::upsample_bilinear2d(x, size, align); },
                        torch::randn({2, 3, 5, 7}));
      expect_as_libtorch(*module, torch::randn({3, 3, 5, 7}));
    }
  }
}

TEST(Resize, ByFactors) {
  namespace F = torch::nn::functional;
  using Options = F::InterpolateFuncOptions;
  const auto by = [](double factor, auto mode) {
    return captured_body(
        [=](const at::Tensor& x) {
          return F::interpolate(x, Options().scale_factor(std::vector<double>{factor, factor}).mode(mode));
        },
        torch::randn({2, 3, 6, 8}));
  };
  expect_as_libtorch(*by(2, torch::kNearest), torch::randn({3, 3, 6, 8}));
  expect_as_libtorch(*by(0.5, torch::kBilinear), torch::randn({3, 3, 6, 8}));
  expect_as_libtorch(*by(1.3, torch::kNearest), torch::randn({3, 3, 6, 8}));
}

TEST(Resize, BetweenQuantizedLayersKeepsTheCodes) {
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
  auto b = net->add("b", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)));
  auto c = net->add("c", nn::Conv2d(nn::Conv2dOptions(8, 4, 1)));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::upsample_nearest2d(torch::relu(a->forward(x)), {12, 15});
    return c->forward(torch::upsample_bilinear2d(torch::relu(b->forward(y)), {17, 30}, false));
  };
  const at::Tensor x = torch::randn({3, 3, 6, 5});
  const runtime::Plan plan = expect_quantized(captured(net, x), x, 30);
  EXPECT_EQ(listing(plan).find("resize_nearest") == std::string::npos, false);
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::resize_nearest && step.op != runtime::Op::resize_bilinear) continue;
    EXPECT_EQ(info(plan, step.output).type, DataType::u8) << listing(plan);
    EXPECT_EQ(info(plan, step.output).scale, info(plan, step.inputs[0]).scale);
  }
}

TEST(Transposed, ConvolutionsOfEveryKind) {
  torch::manual_seed(3);
  for (const int64_t kernel : {2, 3, 4}) {
    auto net = std::make_shared<Net>();
    auto up = net->add("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(6, 5, kernel)
                                                     .stride(2)
                                                     .padding(kernel / 3)
                                                     .output_padding(kernel % 2)));
    auto norm = net->add("norm", nn::BatchNorm2d(5));
    auto last = net->add("last", nn::Conv2d(nn::Conv2dOptions(5, 3, 3).padding(1)));
    randomize_batch_norms(*net);
    net->body = [=](const at::Tensor& x) mutable {
      return last->forward(torch::relu(norm->forward(up->forward(x))));
    };
    const at::Tensor x = torch::randn({3, 6, 5, 7});
    const auto module = captured(net, x);
    expect_as_libtorch(*module, x);
    const runtime::Plan plan = expect_quantized(module, x, 28);
    std::vector<runtime::Op> ops;
    for (const runtime::Step& step : plan.steps) ops.push_back(step.op);
    using enum runtime::Op;
    EXPECT_EQ(ops, (std::vector<runtime::Op>{convert, conv, depth_to_space, conv, convert})) << listing(plan);
  }
}

TEST(Transposed, SizesOfAnExampleReachIt) {
  auto net = std::make_shared<Net>();
  auto up = net->add("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 3).stride(2)));
  net->body = [=](const at::Tensor& x) mutable { return up->forward(x); };
  const torch::NoGradGuard no_grad;
  auto module = captured(net, torch::randn({2, 3, 4, 4}));
  const at::Tensor x = torch::randn({2, 3, 6, 9});
  const runtime::Plan plan = lower(module, {x});
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, kF32));
}

TEST(BatchNorm, AloneIsADepthwiseStep) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto first = net->add("first", nn::BatchNorm2d(3));
  auto a = net->add("a", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
  auto second = net->add("second", nn::BatchNorm2d(8));
  auto b = net->add("b", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)));
  randomize_batch_norms(*net);
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::relu(a->forward(first->forward(x)));
    return b->forward(torch::relu(second->forward(y))) + y;
  };
  const at::Tensor x = torch::randn({3, 3, 6, 7});
  const auto module = captured(net, x);
  expect_as_libtorch(*module, x);
  const runtime::Plan plan = expect_quantized(module, x, 28);
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::conv, &runtime::Step::op), 4) << listing(plan);
}

}  // namespace
}  // namespace ulp::test
