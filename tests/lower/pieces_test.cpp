// Models whose ops the engine has in part: engines for what it has, LibTorch for the rest.
#include <gtest/gtest.h>

#include <limits>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

/// "engine 2, LibTorch 1": the pieces with the number of their nodes.
std::string summary(const PartitionedModel& model) {
  std::string text;
  for (const PartitionInfo& piece : model.partitions())
    text += (text.empty() ? "" : ", ") + std::string(piece.engine ? "engine" : "LibTorch");
  return text;
}

/// Two layers around an op that the engine does not have.
struct Around : torch::nn::Module {
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::Linear head{nullptr};
  Around() {
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 6, 3)));
    head = register_module("head", torch::nn::Linear(6, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor odd = torch::lgamma(torch::relu(first->forward(x)) + 1.5);
    return head->forward(torch::relu(second->forward(odd)).mean({2, 3}));
  }
};

void expect_close(graph::GraphModule& module, PartitionedModel& pieces, const std::vector<int64_t>& item,
                  double limit) {
  const torch::NoGradGuard no_grad;
  for (const int64_t batch : {1, 2, 5}) {
    std::vector<int64_t> sizes = {batch};
    sizes.insert(sizes.end(), item.begin(), item.end());
    const at::Tensor x = torch::randn(sizes);
    const std::vector<at::Tensor> expected = module.forward_all({x}), got = pieces.run({x});
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(expected[i].scalar_type(), got[i].scalar_type());
      if (limit == 0) {
        EXPECT_TRUE(got[i].equal(expected[i])) << "result " << i << ", batch " << batch;
        continue;
      }
      EXPECT_LE(relative_error(got[i].to(at::kDouble), expected[i].to(at::kDouble)), limit)
          << "result " << i << ", batch " << batch;
    }
  }
}

TEST(Pieces, FreeDimensionsHaveTheExamplesSizesOrTheirLargest) {
  torch::manual_seed(1);
  struct Odd : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      return torch::lgamma(torch::relu(x) + 1.5) * x.size(2) + x.mean(2, true);
    }
  };
  auto net = std::make_shared<Odd>();
  const auto module = capture(net, std::vector{torch::randn({2, 3, 9})}, {.free = {{0, 2, "length", 12, 2}}});
  EXPECT_SAYS(error_of([&] { lower_partitioned(*module); }), "length");
  PartitionedModel at_seven = lower_partitioned(module, {torch::randn({1, 3, 7})});
  expect_close(*module, at_seven, {3, 7}, 1e-6);
  EXPECT_SAYS(error_of([&] { at_seven.run({torch::randn({1, 3, 8})}); }), "7");
  PartitionedModel at_most = lower_partitioned(module, {});
  expect_close(*module, at_most, {3, 12}, 1e-6);
  EXPECT_SAYS(error_of([&] { lower_partitioned(module, {torch::randn({1, 3, 13})}); }), "length");
  EXPECT_SAYS(error_of([&] { lower_partitioned(module, {torch::randn({1, 3})}); }), "length");
  EXPECT_EQ(std::as_const(*module).graph().free.size(), 1U);  // the model itself stays free
}

TEST(Pieces, LibTorchRunsWhatTheEngineDoesNotHave) {
  torch::manual_seed(1);
  auto module = captured(std::make_shared<Around>(), torch::randn({2, 3, 9, 9}));
  EXPECT_THROW(lower(*module), Error);
  PartitionedModel pieces = lower_partitioned(*module);
  EXPECT_EQ(summary(pieces), "engine, LibTorch, engine");
  const std::vector<PartitionInfo> all = pieces.partitions();
  ASSERT_EQ(all[1].why.size(), 1U);
  EXPECT_NE(all[1].why[0].find("aten::lgamma"), std::string::npos) << all[1].why[0];
  EXPECT_EQ(all[0].inputs.size(), 1U);
  EXPECT_EQ(all[0].results, all[1].inputs);
  EXPECT_EQ(all[1].results, all[2].inputs);
  expect_close(*module, pieces, {3, 9, 9}, 1e-5);
}

TEST(Pieces, CodesStayWhereTheyAre) {
  torch::manual_seed(2);
  auto module = captured(std::make_shared<Around>(), torch::randn({2, 3, 9, 9}));
  auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  const torch::NoGradGuard no_grad;
  prepared->eval();
  for (int i = 0; i < 4; ++i) prepared->forward(torch::randn({8, 3, 9, 9}));
  auto int8 = quant::convert(prepared);
  int8->eval();
  PartitionedModel pieces = lower_partitioned(*int8);
  EXPECT_EQ(summary(pieces), "engine, LibTorch, engine");
  expect_close(*int8, pieces, {3, 9, 9}, 0.02);
}

TEST(Pieces, OnePieceWhereAllOrNothingIsKnown) {
  auto known = captured_body([](const at::Tensor& x) { return torch::relu(x) * 2; }, torch::randn({2, 7}));
  PartitionedModel engine = lower_partitioned(*known);
  EXPECT_EQ(summary(engine), "engine");
  expect_close(*known, engine, {7}, 0);
  auto foreign =
      captured_body([](const at::Tensor& x) { return torch::lgamma(x.abs() + 1); }, torch::randn({2, 7}));
  PartitionedModel mixed = lower_partitioned(*foreign);
  EXPECT_EQ(summary(mixed), "engine, LibTorch");
  expect_close(*foreign, mixed, {7}, 0);
}

TEST(Pieces, BranchesJoinAndResultsMayBeAnything) {
  auto module = captured_body(
      [](const at::Tensor& x) {
        const at::Tensor odd = torch::lgamma(x.abs() + 1), plain = torch::sigmoid(x);
        return torch::erfinv((odd * plain).tanh()) + plain;
      },
      torch::randn({2, 6}));
  PartitionedModel pieces = lower_partitioned(*module);
  EXPECT_EQ(summary(pieces), "engine, LibTorch, engine, LibTorch, engine");
  expect_close(*module, pieces, {6}, 1e-5);
}

TEST(Pieces, SizesThatFollowTheBatchAndIntegersPass) {
  auto module = captured_body(
      [](const at::Tensor& x) {
        const at::Tensor rows = x.view({x.size(0) * 4, 3});
        return torch::lgamma(torch::softmax(rows, 1) + 1).lt(9).sum() + rows.argmax(1).view({-1, 4});
      },
      torch::randn({2, 4, 3}));
  PartitionedModel pieces = lower_partitioned(*module);
  expect_close(*module, pieces, {4, 3}, 1e-5);
}

struct Several : torch::nn::Module {
  at::Tensor table = register_buffer("table", torch::arange(3.0));
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    return {x, table, torch::lgamma(x.abs() + 1) > 0.1, x > 0, x.argmax(1)};
  }
};

TEST(Pieces, InputsConstantsTruthAndIndicesLeaveAsTheyAre) {
  auto module = captured(std::make_shared<Several>(), torch::randn({2, 5}));
  PartitionedModel pieces = lower_partitioned(*module);
  expect_close(*module, pieces, {5}, 0);
}

struct Counts : torch::nn::Module {
  at::Tensor count = register_buffer("count", torch::zeros({1}));
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 4));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = torch::relu(layer->forward(x));
    count.add_(1);
    return layer->forward(y) * count + count.view({1, 1});
  }
};

TEST(Pieces, WhatTheModelWritesIsReadAsItIs) {
  const torch::NoGradGuard no_grad;
  const auto model = std::make_shared<Counts>();
  const auto module = captured(model, torch::randn({2, 4}));
  PartitionedModel pieces = lower_partitioned(*module);
  const at::Tensor x = torch::randn({3, 4});
  for (int turn = 1; turn <= 3; ++turn) {
    const at::Tensor got = pieces.run({x}).at(0);
    EXPECT_EQ(model->count.item<float>(), static_cast<float>(turn));
    model->count.sub_(1);
    EXPECT_LE(relative_error(got, module->forward(x)), 1e-5) << "turn " << turn;
  }
}

/// Writes a buffer beside a long chain whose every link reads the one before it twice.
struct Branches : torch::nn::Module {
  at::Tensor count = register_buffer("count", torch::zeros({1}));
  at::Tensor forward(const at::Tensor& x) {
    count.add_(1);
    at::Tensor y = x;
    for (int i = 0; i < 40; ++i) y = torch::tanh(y) + y * 0.5;
    return y;
  }
};

TEST(Pieces, BranchesBesideWrittenStateAreCutAtOnce) {
  const auto module = captured(std::make_shared<Branches>(), torch::randn({2, 4}));
  PartitionedModel pieces = lower_partitioned(*module);
  expect_close(*module, pieces, {4}, 1e-5);
}

TEST(Pieces, InputsAreBroughtToTheCapturedDtypes) {
  torch::manual_seed(3);
  auto module = captured(std::make_shared<Around>(), torch::randn({2, 3, 9, 9}));
  PartitionedModel pieces = lower_partitioned(*module);
  const at::Tensor x = torch::randn({2, 3, 9, 9});
  EXPECT_TRUE(pieces.run({x.to(at::kDouble)}).at(0).equal(pieces.run({x}).at(0)));
}

TEST(Pieces, SizesOfNothingRunInLibTorch) {
  auto module = captured_body(
      [](const at::Tensor& x) {
        return torch::cat({x.narrow(1, 0, 0) * 2, torch::relu(x)}, 1);
      },
      torch::randn({2, 5}));
  PartitionedModel pieces = lower_partitioned(*module);
  expect_close(*module, pieces, {5}, 0);
  auto beside_nothing = captured_body(
      [](const at::Tensor& x) {
        const at::Tensor none = x.narrow(1, 0, 0).to(at::kLong) * torch::ones({1, 0}, at::kLong);
        return torch::cat({none.to(at::kFloat), torch::relu(x)}, 1);
      },
      torch::randn({2, 5}));
  pieces = lower_partitioned(*beside_nothing);
  expect_close(*beside_nothing, pieces, {5}, 0);
}

TEST(Pieces, ThePreparedModelKeepsItsModes) {
  auto module = captured(std::make_shared<Around>(), torch::randn({2, 3, 9, 9}));
  auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  prepared->train();
  PartitionedModel pieces = lower_partitioned(*prepared);
  for (const auto& part : prepared->modules()) EXPECT_TRUE(part->is_training());
}

TEST(Pieces, ProfilesAndRefusesBadCalls) {
  auto module = captured(std::make_shared<Around>(), torch::randn({2, 3, 9, 9}));
  PartitionedModel pieces = lower_partitioned(*module, {}, {.threads = 1});
  const std::vector<PartitionInfo> profile = pieces.profile({torch::randn({2, 3, 9, 9})});
  ASSERT_EQ(profile.size(), 3U);
  EXPECT_EQ(profile[0].bytes, 4 * 2 * 9 * 9 * (3 + 8));
  for (const PartitionInfo& piece : profile) EXPECT_GT(piece.seconds, 0);
  EXPECT_NE(error_of([&] { pieces.run({}); }).find("expected 1 inputs, got 0"), std::string::npos);
  EXPECT_NE(error_of([&] { pieces.run({torch::randn({2, 3, 9, 8})}); }).find("expected"), std::string::npos);
  EXPECT_SAYS(error_of([&] { pieces.run({torch::ones({2, 3, 9, 9}, at::kLong)}); }), "of dtype");
  EXPECT_SAYS(error_of([&] { pieces.run({at::Tensor()}); }), "defined");
  EXPECT_SAYS(error_of([&] {
                pieces.run({torch::randn({0, 3, 9, 9})});
              }),
              "a batch of at least 1 in 'input'");
  const at::Tensor x = torch::randn({2, 3, 9, 9});
  EXPECT_LE(relative_error(pieces.run({x})[0], module->forward(x)), 1e-5) << "usable after an error";
  const PartitionedModel other = std::move(pieces);
  EXPECT_NE(error_of([&] { pieces.run({x}); }).find("moved from"), std::string::npos);
}

/// Engines have no strides: what made a tensor contiguous for a view in LibTorch is gone.
TEST(Pieces, ViewsOfWhatWasMadeContiguous) {
  auto module = captured_body(
      [](const at::Tensor& x) {
        const at::Tensor turned = torch::relu(x).transpose(0, 1).contiguous().view({3, -1, 2});
        return turned.transpose(0, 1).reshape({-1, 6}) * 2;
      },
      torch::randn({2, 3, 8}));
  PartitionedModel pieces = lower_partitioned(*module);
  for (const int64_t batch : {2, 3}) {
    const at::Tensor x = torch::randn({batch, 3, 8});
    EXPECT_TRUE(torch::equal(pieces.run({x}).at(0), module->forward(x)));
  }
}

/// Bits as numbers of another type are no identity, though the sizes stay.
TEST(Pieces, BitsOfAnotherType) {
  auto module = captured_body([](const at::Tensor& x) { return torch::relu(x).view(torch::kInt); },
                              torch::randn({2, 7}));
  const at::Tensor x = torch::randn({2, 7});
  EXPECT_TRUE(torch::equal(lower_partitioned(*module).run({x}).at(0), module->forward(x)));
}

/// PyTorch leaves a finite number as it is where the signs agree, else the divisor.
TEST(Pieces, RemaindersByInfinity) {
  auto module =
      captured_body([](const at::Tensor& x) { return torch::remainder(x.slice(1, 0, 1) * 1, x * 1); },
                    torch::randn({2, 7}));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const at::Tensor x = torch::tensor(
      {{2.5F, kInf, -kInf, 1.0F, -2.0F, 0.7F, -0.7F}, {-2.5F, kInf, -kInf, 1.0F, -2.0F, 0.7F, -0.7F}});
  EXPECT_TRUE(torch::allclose(lower_partitioned(*module).run({x}).at(0), module->forward(x), 1e-6, 1e-6));
}

TEST(Pieces, OfFreeDimensionsNameTheWaysOut) {
  const torch::NoGradGuard no_grad;
  Net net;
  net.body = [](const at::Tensor& x) { return torch::relu(x); };
  net.eval();
  const auto graph = ulp::capture(net, {torch::randn({2, 7})}, {.free = {{0, 1, "time", 12}}});
  graph->eval();
  const std::string text = error_of([&] { lower_partitioned(*graph); });
  EXPECT_SAYS(text, "without free dimensions, which pieces do not have, got 'time'");
  EXPECT_SAYS(text, "lower() takes it where the engine has all of its ops, and the graph runs in LibTorch");
  EXPECT_NO_THROW(lower(*graph));
}

}  // namespace
}  // namespace ulp::test
