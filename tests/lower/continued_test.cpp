// Runs that continue each other: a text written token by token has the numbers of the whole text.
#include "continued.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "error_of.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/lower.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

/// A decoder as people write them: positions by slice, heads by view, its own mask.
struct Decoder : nn::Module {
  nn::Embedding words = register_module("words", nn::Embedding(kTokens, 12));
  at::Tensor positions = register_parameter("positions", torch::randn({1, kLongest, 12}) * 0.3);
  nn::Linear qkv = register_module("qkv", nn::Linear(12, 36)),
             out = register_module("out", nn::Linear(12, 12));
  nn::Linear up = register_module("up", nn::Linear(12, 24)),
             down = register_module("down", nn::Linear(24, 12));
  nn::LayerNorm first = register_module("first", nn::LayerNorm(nn::LayerNormOptions({12})));
  nn::LayerNorm second = register_module("second", nn::LayerNorm(nn::LayerNormOptions({12})));
  nn::Linear head = register_module("head", nn::Linear(12, kTokens));
  at::Tensor hidden = register_buffer("hidden", torch::ones({kLongest, kLongest}, torch::kBool).triu(1));

  at::Tensor attend(const at::Tensor& x) {
    const int64_t b = x.size(0), t = x.size(1);
    const auto parts = qkv(x).chunk(3, -1);
    const auto heads = [&](const at::Tensor& y) { return y.view({b, t, 3, 4}).transpose(1, 2); };
    at::Tensor scores = torch::matmul(heads(parts[0]), heads(parts[1]).transpose(-2, -1)) / 2.0;
    scores =
        scores.masked_fill(hidden.slice(0, 0, t).slice(1, 0, t), -std::numeric_limits<float>::infinity());
    return out(torch::matmul(scores.softmax(-1), heads(parts[2])).transpose(1, 2).reshape({b, t, 12}));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = words(ids) + positions.slice(1, 0, ids.size(1));
    x = x + attend(first(x));
    x = x + down(torch::gelu(up(second(x))));
    return head(x);
  }
};

TEST(Continued, ADecoderAsPeopleWriteIt) {
  torch::manual_seed(2);
  Decoder model;
  const auto graph = captured_text(model);
  expect_continues(*graph, {.precision = kF32Precision, .continued = "time"}, 90, kLongest);
  expect_continues(*graph, {.precision = kBF16Precision, .continued = "time"}, 25, kLongest);
}

TEST(Continued, OnEveryInstructionSet) {
  torch::manual_seed(2);
  Decoder model;
  const auto graph = captured_text(model);
  const torch::NoGradGuard no_grad;
  const at::Tensor text = tokens(2, kLongest), want = graph->forward({text});
  const runtime::Plan plan = ulp::lower(*graph, {.continued = "time"});
  for (const kernels::Isa isa : kernels::available_isas()) {
    const runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
    runtime::Context context(engine);
    expect_near(want, write_parts(context, text, {1, 17, 1, 2, kLongest - 21}), 90);
  }
}

TEST(Continued, Gpt2InAllForms) {
  torch::manual_seed(3);
  const auto model = models::make_text_model(
      "gpt2", {.task = models::TextTask::language_modelling, .vocab_size = kTokens, .max_length = 32});
  const auto graph = captured_text(*model, 32);
  expect_continues(*graph, {.precision = kF32Precision, .continued = "time"}, 90, 32);
  expect_continues(*graph, {.precision = kBF16Precision, .continued = "time"}, 20, 32);
  expect_continues(*quant::quantize_dynamic(graph), {.continued = "time"}, 30, 32);
  expect_continues(*quant::quantize_weights(graph), {.continued = "time"}, 90, 32);
  const auto prepared = quant::prepare(graph, quant::Recipe::x86_int8());
  {
    const torch::NoGradGuard no_grad;
    for (const int64_t seed : {1, 3, 9}) prepared->forward({tokens(9, 32, static_cast<uint64_t>(seed))});
  }
  const auto fixed = quant::convert(prepared);  // the keys and values that are kept are codes
  const runtime::Plan plan = ulp::lower(*fixed, {.continued = "time"});
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::attention) continue;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(step.inputs[1])].type, runtime::DataType::u8);
  }
  expect_continues(*fixed, {.continued = "time"}, 30, 32);
}

TEST(Continued, ContextsWriteTextsOfTheirOwn) {
  Decoder model;
  const auto graph = captured_text(model);
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "ulp_continued_test.ulp";
  ulp::lower(*graph, {.continued = "time"}).save(path);
  const runtime::Engine engine(path);
  std::filesystem::remove(path);
  const torch::NoGradGuard no_grad;
  const at::Tensor one = tokens(1, 10, 5), two = tokens(2, 10, 6);
  runtime::Context a(engine), b(engine);
  const at::Tensor a1 = write(a, one.narrow(1, 0, 4)), b1 = write(b, two.narrow(1, 0, 7));
  const at::Tensor a2 = write(a, one.narrow(1, 4, 6)), b2 = write(b, two.narrow(1, 7, 3));
  expect_near(graph->forward({one}), torch::cat({a1, a2}, 1), 90);
  expect_near(graph->forward({two}), torch::cat({b1, b2}, 1), 90);
  // Going back, and on with other tokens.
  a.rewind(4);
  const at::Tensor other = torch::cat({one.narrow(1, 0, 4), tokens(1, 3, 9)}, 1);
  expect_near(graph->forward({other}).narrow(1, 4, 3), write(a, other.narrow(1, 4, 3)), 90);
  a.rewind();
  expect_near(graph->forward({two}), write(a, two), 90);
}

TEST(Continued, WhatDoesNotFitIsAnErrorAndChangesNothing) {
  Decoder model;
  const auto graph = captured_text(model);
  const runtime::Engine engine(ulp::lower(*graph, {.continued = "time"}));
  const torch::NoGradGuard no_grad;
  const at::Tensor text = tokens(1, kLongest);
  runtime::Context context(engine);
  write(context, text.narrow(1, 0, 20));
  EXPECT_ERROR(write(context, tokens(1, 5)),
               "expected at most 4 more of 'time' behind the 20 that the context has taken, got 5");
  EXPECT_ERROR(write(context, tokens(2, 4)),
               "expected a batch of 1, as in the runs that this one continues, got 2");
  EXPECT_ERROR(write(context, tokens(1, kLongest + 1)), "expected 'time' to be 1 to 24, got 25");
  EXPECT_ERROR(write(context, torch::full({1, 1}, kTokens, at::kLong)), "expected ids in [0, 50)");
  EXPECT_ERROR(context.rewind(21), "expected a position of 0 to 20, got 21");
  EXPECT_EQ(context.position(), 20);
  expect_near(graph->forward({text}).narrow(1, 20, 4), write(context, text.narrow(1, 20, 4)), 90);
}

TEST(Continued, PlansThatKeepRowsWithoutContinuingAreRefused) {
  Decoder model;
  runtime::Plan plan = ulp::lower(*captured_text(model), {.continued = "time"});
  plan.continued.clear();
  EXPECT_ERROR(runtime::Engine{plan}, "along which the runs of this plan continue each other");
  plan.continued = "length";
  EXPECT_ERROR(runtime::Engine{plan}, "runs continue along 'length', which is no free dimension");
}

runtime::Plan lowered(const Body& body, const std::string& dimension) {
  torch::manual_seed(4);
  const auto net = std::make_shared<Net>();
  net->body = body;
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto graph = ulp::capture(net, Tensors{torch::randn({2, 16, 6})}, {.free = {{0, 1, "time"}}});
  graph->eval();
  return ulp::lower(*graph, {.continued = dimension});
}

/// Why a network cannot be continued.
std::string refusal(const Body& body, const std::string& dimension = "time") {
  return error_of([&] { lowered(body, dimension); });
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Continued, NetworksThatLookForwardAreRefused) {
  expect_contains(refusal([](const at::Tensor& x) { return x * 2; }, "length"),
                  "expected a free dimension of the graph as LowerOptions::continued, got 'length'");
  expect_contains(refusal([](const at::Tensor& x) { return at::scaled_dot_product_attention(x, x, x); }),
                  "'time'");
  expect_contains(refusal([](const at::Tensor& x) { return x + x.mean(1, true); }),
                  "only looks back along 'time'");
  expect_contains(refusal([](const at::Tensor& x) { return x.cumsum(1); }), "only looks back along 'time'");
  expect_contains(refusal([](const at::Tensor& x) { return x.flip({1}); }), "only looks back along 'time'");
  expect_contains(refusal([](const at::Tensor& x) {
                    return torch::matmul(torch::ones({x.size(1), x.size(1)}).tril(), x);
                  }),
                  "'time'");
  EXPECT_NO_THROW(lowered([](const at::Tensor& x) { return torch::tanh(x) * 2 + 1; }, "time"));
  const auto distant = [](const at::Tensor& x) {  // a number for each pair of positions, as ALiBi has it
    const at::Tensor at = torch::arange(x.size(1)).to(at::kFloat), apart = at.unsqueeze(0) - at.unsqueeze(1);
    return at::scaled_dot_product_attention(x, x, x, apart.abs() * -0.5);
  };
  expect_contains(refusal(distant),
                  "attention continues with what comes later hidden and with sliding windows");
}

}  // namespace
}  // namespace ulp::test
