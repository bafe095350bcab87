// Convolutions of one dimension, and what is said about those of three.
#include <gtest/gtest.h>

#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

nn::Conv1d conv1d(int64_t in, int64_t out, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv1d(nn::Conv1dOptions(in, out, 3).padding(1).stride(stride).groups(groups));
}

/// A small network over sequences: batch norm, a residual sum, a cat, poolings.
std::shared_ptr<Net> sequence_net() {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv1d(4, 8, 2)), b = net->add("b", conv1d(8, 8, 1, 8)),
       c = net->add("c", conv1d(16, 8));
  auto norm = net->add("norm", nn::BatchNorm1d(8));
  auto fc = net->add("fc", nn::Linear(8 * 3, 5));
  {
    const torch::NoGradGuard no_grad;
    norm->running_mean.uniform_(-0.2, 0.2);
    norm->running_var.uniform_(0.5, 1.5);
  }
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::relu(norm->forward(a->forward(x)));
    const at::Tensor z = torch::relu(b->forward(y) + y);
    const at::Tensor joined = torch::max_pool1d(torch::relu(c->forward(torch::cat({y, z}, 1))), 2);
    return fc->forward(torch::flatten(torch::avg_pool1d(joined, 2), 1));
  };
  return net;
}

TEST(Sequences, AreImagesOfHeightOneInTheEngine) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({5, 4, 24});
  const auto module = captured(sequence_net(), torch::randn({2, 4, 24}));
  const runtime::Plan plan = lower(*module);
  // One way in and none out: the rest of the network stays in the engine's own order.
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::unsqueeze, &runtime::Step::op), 1) << listing(plan);
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::squeeze, &runtime::Step::op), 0) << listing(plan);
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::convert, &runtime::Step::op), 1) << listing(plan);
  EXPECT_TRUE(plan.constants.contains("b.weight"));
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
    EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), rounding_bound(plan, kF32, kF32));
  }
  const runtime::Plan bf16 = lower(*module, {.precision = LowerOptions::Precision::bf16});
  runtime::Engine engine(bf16);
  EXPECT_LE(relative_error(run_engine(engine, x), module->forward(x)), rounding_bound(bf16, kF32, kBF16));
}

TEST(Sequences, QuantizedLayersWorkOnIntegers) {
  const torch::NoGradGuard no_grad;
  const auto module = captured(sequence_net(), torch::randn({2, 4, 24}));
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 3; ++i) prepared->forward(torch::randn({8, 4, 24}));
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::conv) continue;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(step.inputs[0])].type, runtime::DataType::u8) << listing(plan);
  }
  const at::Tensor x = torch::randn({64, 4, 24});
  const at::Tensor exact = module->forward(x), expected = quantized->forward(x);
  EXPECT_GE(quant::quantization_error(exact, expected).sqnr_db, 30);
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
    const at::Tensor got = run_engine(engine, x);
    EXPECT_GE(quant::quantization_error(exact, got).sqnr_db, 30);
    EXPECT_LE((got - expected).norm().item<double>(), 0.5 * (expected - exact).norm().item<double>());
  }
}

TEST(Sequences, AResultLeavesAsASequence) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto a = net->add("a", conv1d(4, 6));
  net->body = [=](const at::Tensor& x) mutable { return torch::relu(a->forward(x)); };
  const auto module = captured(net, torch::randn({2, 4, 9}));
  const at::Tensor x = torch::randn({3, 4, 9});
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  const at::Tensor got = run_engine(engine, x);
  ASSERT_EQ(got.sizes(), (std::vector<int64_t>{3, 6, 9}));
  EXPECT_LE(relative_error(got, module->forward(x)), rounding_bound(plan, kF32, kF32));
}

TEST(Volumes, AreQuantizedInTheGraphAndInTheEngine) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Conv3d(nn::Conv3dOptions(2, 4, 3).padding(1)));
  auto norm = net->add("norm", nn::BatchNorm3d(4));
  auto b = net->add("b", nn::Conv3d(nn::Conv3dOptions(4, 3, 3)));
  norm->running_var.uniform_(0.5, 1.5);
  net->body = [=](const at::Tensor& x) mutable {
    return b->forward(torch::relu(norm->forward(a->forward(x))));
  };
  const auto module = captured(net, torch::randn({2, 2, 6, 5, 6}));
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 2; ++i) prepared->forward(torch::randn({4, 2, 6, 5, 6}));
  graph::PassReport report;
  const auto quantized = quant::convert(prepared, &report);
  EXPECT_EQ(report.changes, (std::vector<std::string>{"a + relu quantized", "b quantized"}));
  EXPECT_TRUE(quantized->graph().find_attribute("a.weight.int8") != nullptr);
  const at::Tensor x = torch::randn({4, 2, 6, 5, 6});
  EXPECT_GE(quant::quantization_error(module->forward(x), quantized->forward(x)).sqnr_db, 30);
  runtime::Engine engine(lower(*quantized));
  EXPECT_GE(quant::quantization_error(quantized->forward(x), run_engine(engine, x)).sqnr_db, 30);
}

}  // namespace
}  // namespace ulp::test
