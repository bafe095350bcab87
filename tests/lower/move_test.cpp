// What only moves elements: the engine gives the graph's bits, copies at most once, and refuses by name.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "error_of.h"
#include "int8_support.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;

/// The same bits at several batch sizes; returns the plan.
runtime::Plan expect_same_bits(const Body& body, const std::vector<int64_t>& item) {
  std::vector<int64_t> example = item;
  example.insert(example.begin(), 2);
  const auto module = captured_body(body, torch::randn(example));
  const runtime::Plan plan = lower(*module);
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    EXPECT_TRUE(got.equal(module->forward({x}))) << listing(plan);
  });
  return plan;
}

int count(const runtime::Plan& plan, runtime::Op op) {
  return static_cast<int>(std::ranges::count(plan.steps, op, &runtime::Step::op));
}

struct MoveCase {
  const char* name;
  Body body;
  std::vector<int64_t> item;
};

const std::vector<MoveCase>& move_cases() {
  static const std::vector<MoveCase> all = {
      {"permute",
       [](const Tensor& x) {
         return x.permute({0, 3, 1, 2});
       },
       {3, 4, 5}},
      {"transpose of images", [](const Tensor& x) { return x.transpose(2, 3); }, {3, 4, 5}},
      {"transpose of rows", [](const Tensor& x) { return x.transpose(-1, 1); }, {7, 9}},
      {"mT", [](const Tensor& x) { return x.mT(); }, {2, 7, 9}},
      {"movedim",
       [](const Tensor& x) {
         return x.movedim({1, 3}, {-1, 1});
       },
       {3, 4, 5}},
      {"swapaxes", [](const Tensor& x) { return x.swapaxes(1, 2); }, {3, 4, 2, 5}},
      {"view",
       [](const Tensor& x) {
         return x.view({x.size(0), 6, 10});
       },
       {3, 4, 5}},
      {"view of six",
       [](const Tensor& x) {
         return x.view({x.size(0), 3, 2, 2, 5, 1});
       },
       {3, 4, 5}},
      {"view that splits a row",
       [](const Tensor& x) {
         return x.permute({0, 2, 3, 1}).reshape({x.size(0), 8, -1});
       },
       {6, 4, 5}},
      {"flatten some", [](const Tensor& x) { return x.flatten(2); }, {3, 4, 5}},
      {"unflatten",
       [](const Tensor& x) {
         return x.unflatten(1, {2, 3});
       },
       {6, 5}},
      {"squeeze", [](const Tensor& x) { return x.squeeze(1).unsqueeze(-1); }, {1, 4, 5}},
      {"expand",
       [](const Tensor& x) {
         return x.unsqueeze(2).expand({-1, -1, 4, -1});
       },
       {3, 5}},
      {"expand_as", [](const Tensor& x) { return x.narrow(2, 1, 1).expand_as(x); }, {3, 5}},
      {"repeat",
       [](const Tensor& x) {
         return x.repeat({1, 2, 1, 3});
       },
       {3, 4, 5}},
      {"repeat_interleave", [](const Tensor& x) { return x.repeat_interleave(3, 1); }, {4, 5}},
      {"slice with a step",
       [](const Tensor& x) {
         return x.index({Slice(), Slice(), Slice(1, None, 2), Slice(None, None, 3)});
       },
       {3, 5, 7}},
      {"narrow", [](const Tensor& x) { return x.narrow(1, 1, 2); }, {4, 3, 2, 2}},
      {"select", [](const Tensor& x) { return x.select(2, -1); }, {3, 4, 5}},
      {"select the first",
       [](const Tensor& x) {
         return x.index({Slice(), 0});
       },
       {3, 4}},
      {"one number an item", [](const Tensor& x) { return x.select(1, 2).unsqueeze(1); }, {5}},
      {"one number an item, stacked",
       [](const Tensor& x) {
         return torch::stack({x.select(1, 2), x.select(1, 0)}, 1);
       },
       {5}},
      {"chunk", [](const Tensor& x) { return x.chunk(3, 2)[1]; }, {3, 7}},
      {"split", [](const Tensor& x) { return x.split(2, 3)[2]; }, {3, 4, 5}},
      {"split_with_sizes",
       [](const Tensor& x) {
         return x.split_with_sizes({1, 3}, 2)[1];
       },
       {3, 4, 5}},
      {"tensor_split", [](const Tensor& x) { return x.tensor_split(3, 1)[2]; }, {8, 4}},
      {"unbind", [](const Tensor& x) { return x.unbind(1)[2]; }, {3, 4, 5}},
      {"flip",
       [](const Tensor& x) {
         return x.flip({1, 3});
       },
       {3, 4, 5}},
      {"roll",
       [](const Tensor& x) {
         return x.roll({2, -1}, {2, 3});
       },
       {3, 4, 5}},
      {"roll of rows", [](const Tensor& x) { return x.roll({-9}, {1}); }, {7}},
      {"pixel_shuffle", [](const Tensor& x) { return torch::pixel_shuffle(x, 2); }, {12, 3, 5}},
      {"pixel_unshuffle", [](const Tensor& x) { return torch::pixel_unshuffle(x, 3); }, {2, 6, 9}},
      {"unfold", [](const Tensor& x) { return x.unfold(1, 4, 2); }, {9, 3}},
      {"pad",
       [](const Tensor& x) {
         return F::pad(x, F::PadFuncOptions({1, 2, 0, 3, -1, 0}).value(1.5));
       },
       {3, 4, 5}},
      {"pad rows",
       [](const Tensor& x) {
         return torch::constant_pad_nd(x, {2, -1}, -3);
       },
       {6}},
      {"reflection",
       [](const Tensor& x) {
         return F::pad(x, F::PadFuncOptions({1, 2, 3, 0}).mode(torch::kReflect));
       },
       {3, 4, 5}},
      {"replication",
       [](const Tensor& x) {
         return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kReplicate));
       },
       {3, 4}},
      {"circular",
       [](const Tensor& x) {
         return F::pad(x, F::PadFuncOptions({1, 2}).mode(torch::kCircular));
       },
       {3, 4}},
      {"cat of rows",
       [](const Tensor& x) {
         return torch::cat({x, x.narrow(2, 1, 2), x.flip({2})}, 2);
       },
       {3, 4, 5}},
      {"cat of lines",
       [](const Tensor& x) {
         return torch::cat({x, x.narrow(1, 1, 2)}, 1);
       },
       {4, 5}},
      {"cat of ten", [](const Tensor& x) { return torch::cat(std::vector<Tensor>(10, x), -1); }, {2, 3}},
      {"cat of a hundred",
       [](const Tensor& x) { return torch::cat(std::vector<Tensor>(100, x), 1); },
       {2, 3}},
      {"stack",
       [](const Tensor& x) {
         return torch::stack({x, x.flip({1})}, 1);
       },
       {3, 4}},
      {"stack at the end",
       [](const Tensor& x) {
         return torch::stack({x, x.flip({1}), x}, -1);
       },
       {3, 4}},
      {"stack of images",
       [](const Tensor& x) {
         return torch::stack({x, x}, 2);
       },
       {3, 4, 5}},
      {"patches",
       [](const Tensor& x) {
         return x.view({x.size(0), 3, 2, 4, 3, 2}).permute({0, 2, 4, 1, 3, 5}).reshape({x.size(0), 6, 24});
       },
       {3, 8, 6}},
      {"windows of Swin",
       [](const Tensor& x) {
         const Tensor y = x.permute({0, 2, 3, 1}).roll({-1, -1}, {1, 2}).view({x.size(0), 2, 2, 2, 2, 3});
         return y.permute({0, 1, 3, 2, 4, 5}).reshape({x.size(0), 16, 3});
       },
       {3, 4, 4}},
      {"focus",
       [](const Tensor& x) {
         const auto part = [&](int64_t h, int64_t w) {
           return x.index({Slice(), Slice(), Slice(h, None, 2), Slice(w, None, 2)});
         };
         return torch::cat({part(0, 0), part(1, 0), part(0, 1), part(1, 1)}, 1);
       },
       {3, 4, 6}},
      {"the batch there and back",
       [](const Tensor& x) {
         return x.permute({1, 0, 2}).reshape({3, -1, 4}).permute({1, 2, 0});
       },
       {3, 4}},
      {"diagonals",
       [](const Tensor& x) {
         return torch::cat({x.diagonal(0, 2, 3), x.diagonal(1, 2, 3).repeat({1, 1, 2}).narrow(2, 0, 2)}, 2);
       },
       {3, 4, 5}},
      {"a diagonal across channels", [](const Tensor& x) { return x.diagonal(-1, 1, 3); }, {5, 2, 4}},
      {"as_strided",
       [](const Tensor& x) {
         return x.contiguous().as_strided({x.size(0), 3, 4}, {24, 7, 2}, 1);
       },
       {4, 6}},
      {"as_strided of what was moved",
       [](const Tensor& x) {
         return x.transpose(1, 2).contiguous().as_strided({x.size(0), 5}, {24, 4});
       },
       {4, 6}},
      {"select_scatter",
       [](const Tensor& x) {
         return at::select_scatter(x, x.select(1, 0) * 2, 1, 3) +
                at::select_scatter(x, x.select(2, 1), 2, -1);
       },
       {5, 6}},
      {"slice_scatter",
       [](const Tensor& x) {
         const Tensor y = at::slice_scatter(x, x.narrow(1, 0, 2), 1, 3, 5);
         return at::slice_scatter(y, x.narrow(2, 0, 3) * 2, 2, 0, 6, 2);
       },
       {5, 6}},
      {"index_put",
       [ids = torch::tensor({3, -5}, torch::kLong),
        row = torch::tensor({5, 0}, torch::kLong)](const Tensor& x) {
         const Tensor y = at::index_put(x, {std::nullopt, ids}, x.narrow(1, 0, 2));
         return at::index_put(y, {std::nullopt, ids, row}, x.select(2, 0).narrow(1, 0, 2) * 2);
       },
       {5, 6}},
      {"index_put of one value",
       [mask = torch::arange(5) % 2 == 0](const Tensor& x) {
         return at::index_put(x, {std::nullopt, mask}, x.narrow(1, 0, 1).narrow(2, 0, 1));
       },
       {5, 6}},
      {"copy", [](const Tensor& x) { return at::copy(at::zeros_like(x), x.narrow(1, 0, 1)); }, {5, 6}},
      {"heads in the batch",
       [](const Tensor& x) {
         const Tensor heads = x.transpose(0, 1).reshape({5, x.size(0) * 2, 3}).transpose(0, 1);
         return heads.reshape({x.size(0), 2, 5, 3}).flip({3});
       },
       {5, 6}},
  };
  return all;
}

TEST(Move, EveryOpGivesTheGraphsBits) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  for (const MoveCase& c : move_cases()) {
    SCOPED_TRACE(c.name);
    try {
      expect_same_bits(c.body, c.item);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Move, ChainsAreOneStep) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = expect_same_bits(
      [](const Tensor& x) {
        return x.view({x.size(0), 3, 2, 4, 3, 2}).permute({0, 2, 4, 1, 3, 5}).flip({3}).narrow(1, 0, 1);
      },
      {3, 8, 6});
  EXPECT_EQ(count(plan, runtime::Op::move), 1) << listing(plan);
  EXPECT_EQ(plan.steps.size(), 1u) << listing(plan);
}

/// The profile's word for a step that costs nothing.
int free_steps(const runtime::Plan& plan) {
  runtime::Engine engine(plan);
  const int64_t n = element_count(engine.inputs()[0], 2), m = element_count(engine.outputs()[0], 2);
  std::vector<float> in(static_cast<size_t>(n)), out(static_cast<size_t>(m));
  const void* inputs[] = {in.data()};
  void* outputs[] = {out.data()};
  int found = 0;
  for (const runtime::StepProfile& step : engine.profile(2, inputs, outputs)) found += step.kernel == "none";
  return found;
}

TEST(Move, ThePatchesOfAVisionTransformerLieAsTheyShould) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 4).stride(4)));
  auto fc = net->add("fc", nn::Linear(8, 5));
  net->body = [=](const Tensor& x) mutable {
    return fc->forward(conv->forward(x).flatten(2).transpose(1, 2));
  };
  const Tensor x = torch::randn({2, 3, 12, 8});
  const runtime::Plan plan = lower(*captured(net, x));
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, kF32));
  EXPECT_EQ(count(plan, runtime::Op::move), 1) << listing(plan);
  EXPECT_EQ(free_steps(plan), 1) << listing(plan);
}

TEST(Move, AConvNextBlockMovesNothing) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(8, 8, 7).padding(3).groups(8)));
  auto norm = net->add("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  auto up = net->add("up", nn::Linear(8, 32));
  auto down = net->add("down", nn::Linear(32, 8));
  net->body = [=](const Tensor& x) mutable {
    const Tensor y = norm->forward(conv->forward(x).permute({0, 2, 3, 1}));
    return x + down->forward(F::gelu(up->forward(y))).permute({0, 3, 1, 2});
  };
  const Tensor x = torch::randn({3, 8, 6, 5});
  const runtime::Plan plan = lower(*captured(net, x));
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, kF32));
  EXPECT_EQ(free_steps(plan), count(plan, runtime::Op::move)) << listing(plan);
}

TEST(Move, AClassTokenStandsBeforeEveryImage) {
  const torch::NoGradGuard no_grad;
  for (const bool expands : {true, false}) {
    auto net = std::make_shared<Net>();
    const Tensor token = net->register_parameter("token", torch::randn({1, 2, 5}));
    net->body = [=](const Tensor& x) {
      const Tensor all = expands ? token.expand({x.size(0), -1, -1}) : token.repeat({x.size(0), 1, 1});
      return torch::cat({all, x}, 1);
    };
    const auto module = captured(net, torch::randn({2, 3, 5}));
    runtime::Engine engine(lower(*module));
    for (const int64_t batch : {1, 3, 17}) {
      const Tensor x = torch::randn({batch, 3, 5});
      EXPECT_TRUE(run_engine(engine, x).equal(net->body(x)));
    }
  }
}

TEST(Move, CodesPassThrough) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
  net->body = [=](const Tensor& x) mutable {
    const Tensor y = torch::relu(a->forward(x));
    return torch::pixel_shuffle(y, 2).flip({3});
  };
  const Tensor x = torch::randn({3, 3, 6, 4});
  const auto prepared = quant::prepare(captured(net, x), quant::Recipe::x86_int8());
  prepared->forward(x);
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  expect_steps_as_graph(*quantized, plan, x);
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::move) continue;
    EXPECT_EQ(info(plan, step.output).type, info(plan, step.inputs[0]).type);
  }
  EXPECT_EQ(count(plan, runtime::Op::move), 1) << listing(plan);
}

TEST(Move, InBf16BetweenLayers) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto a = net->add("a", nn::Linear(6, 8));
  auto b = net->add("b", nn::Linear(5, 4));
  net->body = [=](const Tensor& x) mutable { return b->forward(a->forward(x).transpose(1, 2).flip({1})); };
  const Tensor x = torch::randn({3, 5, 6});
  const runtime::Plan plan = lower(*captured(net, x), {.precision = LowerOptions::Precision::bf16});
  runtime::Engine engine(plan);
  EXPECT_LE(relative_error(run_engine(engine, x), net->body(x)), rounding_bound(plan, kF32, 2 * kBF16));
  for (const runtime::Step& step : plan.steps) {
    if (step.op == runtime::Op::move) {
      EXPECT_EQ(plan.tensors[static_cast<size_t>(step.output)].type, runtime::DataType::bf16)
          << listing(plan);
    }
  }
}

TEST(Move, AViewThatSeveralReadIsRefusedOnce) {
  const torch::NoGradGuard no_grad;
  const auto body = [](const Tensor& x) {
    const Tensor y = x.transpose(0, 1);
    return torch::cat({torch::relu(y), torch::relu(y)}, 1);
  };
  const std::string text = error_of([&] { lower(*captured_body(body, torch::randn({2, 4, 6}))); });
  EXPECT_NE(text.find("batch"), std::string::npos) << text;
}

TEST(Move, AJoinOfOneIsNothing) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan =
      expect_same_bits([](const Tensor& x) { return torch::cat({x.flip({1})}, 1); }, {3, 4});
  EXPECT_EQ(plan.steps.size(), 1u) << listing(plan);
}

TEST(Move, WhatMovesTheBatchIsRefusedByName) {
  const torch::NoGradGuard no_grad;
  const auto refused = [](const Body& body) {
    return error_of([&] { lower(*captured_body(body, torch::randn({2, 4, 6}))); });
  };
  const auto expect = [&](const Body& body, const char* op) {
    const std::string text = refused(body);
    EXPECT_NE(text.find(op), std::string::npos) << text;
    EXPECT_NE(text.find("batch"), std::string::npos) << text;
  };
  expect([](const Tensor& x) { return x.flip({0}); }, "aten::flip");
  expect([](const Tensor& x) { return x.view({6, -1}); }, "aten::view");
  expect([](const Tensor& x) { return x.roll({1}, {0}); }, "aten::roll");
  expect([](const Tensor& x) { return torch::cat({x, x}, 0); }, "aten::cat");
  expect(
      [](const Tensor& x) {
        return torch::constant_pad_nd(x, {0, 0, 0, 0, 1, 0});
      },
      "aten::constant_pad_nd");
  expect([](const Tensor& x) { return x.slice(0, 1); }, "aten::slice");
  expect([](const Tensor& x) { return x.diagonal(); }, "aten::diagonal");
  EXPECT_NE(refused([](const Tensor& x) {
              return x.contiguous().as_strided({x.size(0), 4}, {12, 6});
            }).find("inside each item"),
            std::string::npos);
}

TEST(Move, ResultsAndInputsMayHaveTheBatchAnywhere) {
  const torch::NoGradGuard no_grad;
  for (const int64_t dim : {0, 1, 2}) {
    auto net = std::make_shared<Net>();
    net->body = [dim](const Tensor& x) {
      return torch::cat({x.relu(), x + 1}, (dim + 1) % 3).permute({2, 0, 1});
    };
    std::vector<int64_t> sizes = {4, 6};
    sizes.insert(sizes.begin() + dim, 3);
    const auto module = capture(net, {torch::randn(sizes)}, {.batch_dims = {dim}});
    runtime::Engine engine(lower(*module), {.threads = 2});
    sizes[static_cast<size_t>(dim)] = 5;
    const Tensor x = torch::randn(sizes), expected = module->forward(x);
    EXPECT_TRUE(run_engine_all(engine, {x}).at(0).equal(expected)) << dim;
    EXPECT_TRUE(run_engine(engine, x, 2).equal(expected)) << dim;
  }
}

TEST(Move, ExamplesLeaveTheBatchFreeWhereItIs) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Net>();
  net->body = [](const Tensor& x) { return x.relu(); };
  const auto module = capture(net, {torch::randn({4, 3, 6})}, {.batch_dims = {1}});
  const runtime::Plan plan = lower(module, {torch::randn({7, 2, 6})});
  EXPECT_EQ(plan.tensors[static_cast<size_t>(plan.inputs[0])].shape,
            (std::vector<int64_t>{7, runtime::kBatch, 6}));
  runtime::Engine engine(plan);
  const Tensor x = torch::randn({7, 5, 6});
  EXPECT_TRUE(run_engine_all(engine, {x}).at(0).equal(x.relu()));
  EXPECT_THROW(lower(module, {torch::randn({7})}), Error);
}

/// The example's batch, and those that a capture or a pass tries, may all have no more rows than the part.
TEST(Move, PartsOfTheBatchAreRefusedByNameWhateverTheExamplesBatchIs) {
  const torch::NoGradGuard no_grad;
  const auto expect_refused = [](const std::function<void()>& lowering, const char* op) {
    const std::string text = error_of(lowering);
    EXPECT_SAYS(text, op);
    return text;
  };
  for (const int64_t n : {1, 2, 3, 4, 5, 8}) {
    const std::vector<std::pair<const char*, Body>> parts = {
        {"aten::slice", [n](const Tensor& x) { return x.slice(0, 0, n) * 2; }},
        {"aten::slice", [n](const Tensor& x) { return torch::relu(x.slice(0, -n)); }},
        {"aten::slice",
         [n](const Tensor& x) { return x.transpose(0, 1).slice(1, 0, n).transpose(0, 1) * 2; }},
        {"aten::narrow", [n](const Tensor& x) { return x.narrow(0, 0, n) * 2; }}};
    for (const auto& [op, body] : parts) {
      for (const int64_t batch : {1, 2, 3, 4, 6, 9}) {
        SCOPED_TRACE(testing::Message() << op << " of " << n << " at " << batch);
        std::shared_ptr<graph::GraphModule> module;
        try {
          module = captured_body(body, torch::randn({batch, 5, 4}));
        } catch (const Error&) {
          continue;  // the capture saw that the size does not follow the batch
        } catch (const c10::Error&) {
          continue;  // fewer rows than are read
        }
        EXPECT_SAYS(expect_refused([&] { lower(*module); }, op), "batch");
        PartitionedModel pieces = lower_partitioned(*module);
        for (const int64_t rows : {1, 2, 7, 12}) {
          const Tensor x = torch::randn({rows, 5, 4});
          if (op == std::string("aten::narrow") && rows < n) continue;
          EXPECT_TRUE(pieces.run({x}).at(0).equal(module->forward({x}))) << rows;
        }
        if (batch >= n) expect_refused([&] { lower(module, {torch::randn({batch, 6, 4})}); }, op);
      }
    }
  }
}

TEST(Move, PartsThatFollowTheBatchAreAllOfIt) {
  const std::vector<Body> all = {
      [](const Tensor& x) { return torch::relu(x.slice(0, 0, x.size(0))); },
      [](const Tensor& x) { return torch::relu(x.narrow(0, 0, x.size(0))); },
      [](const Tensor& x) { return torch::relu(x.slice(0, std::nullopt, std::nullopt)); },
      [](const Tensor& x) { return torch::relu(x.slice(0, 0, std::numeric_limits<int32_t>::max())); }};
  for (const Body& body : all) {
    for (const int64_t batch : {1, 2, 5}) {
      const auto module = captured_body(body, torch::randn({batch, 6, 5}));
      runtime::Engine engine(lower(*module));
      for (const int64_t rows : {1, 3, 9}) {
        const Tensor x = torch::randn({rows, 6, 5});
        EXPECT_TRUE(torch::equal(run_engine(engine, x), module->forward({x})));
      }
    }
  }
}

TEST(Move, SlicesThatTakeAllOfTheBatchAreNothing) {
  const auto module = captured_body(
      [](const Tensor& x) {
        return torch::relu(x.slice(0, 0, std::numeric_limits<int64_t>::max()).slice(1, 1, 4))
            .expand_as(x.slice(1, 1, 4));
      },
      torch::randn({2, 6, 5}));
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  const Tensor x = torch::randn({3, 6, 5});
  EXPECT_TRUE(torch::equal(run_engine(engine, x), module->forward({x})));
}

}  // namespace
}  // namespace ulp::test
