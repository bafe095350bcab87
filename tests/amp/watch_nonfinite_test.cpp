// Where the first value that is not finite comes from, forward and backward, and why steps were skipped.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "constants.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using namespace ulp::amp;
namespace nn = torch::nn;

/// y = w2 (f(gain * (w1 x))) in nested modules: stage.block.first, stage.block.second.
struct StageBlockImpl : nn::Module {
  StageBlockImpl() {
    first = register_module("first", nn::Linear(nn::LinearOptions(4, 4).bias(false)));
    second = register_module("second", nn::Linear(nn::LinearOptions(4, 3).bias(false)));
    const at::NoGradGuard no_grad;
    first->weight.copy_(torch::eye(4));
    second->weight.fill_(0.25);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = first(x);
    h = kind == "log" ? h.log() : kind == "sqrt" ? h.sqrt() : kind == "in_place" ? h.clone().log_() : h;
    return second(h);
  }
  std::string kind;
  nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(StageBlock);

struct StagedNetImpl : nn::Module {
  explicit StagedNetImpl(const std::string& kind = "") {
    auto stage = register_module("stage", std::make_shared<nn::Module>("Stage"));
    block = stage->register_module("block", StageBlock());
    block->kind = kind;
  }
  at::Tensor forward(const at::Tensor& x) { return block(x); }
  StageBlock block{nullptr};
};
TORCH_MODULE(StagedNet);

/// Runs one watched step and returns what was found.
template <typename Forward>
std::optional<NonFinite> first_nonfinite(NumericsWatch& watch, const Forward& forward) {
  auto step = watch.begin_step();
  forward().sum().backward();
  step.gradients();
  step.end();
  const auto& found = watch.summary().nonfinite;
  return found.empty() ? std::nullopt : std::make_optional(found.front());
}

at::Tensor ones_with(int64_t row, int64_t column, double value) {
  at::Tensor x = torch::ones({3, 4});
  x[row][column] = value;
  return x;
}

TEST(WatchNonFinite, FiniteRunsHaveNone) {
  StagedNet net("log");
  NumericsWatch watch(*net);
  EXPECT_FALSE(first_nonfinite(watch, [&] { return net(torch::ones({3, 4})); }));
}

TEST(WatchNonFinite, NamesTheForwardOpItsModuleAndTheIndex) {
  for (const char* kind : {"log", "in_place"}) {
    StagedNet net(kind);
    NumericsWatch watch(*net);
    const auto found = first_nonfinite(watch, [&] { return net(ones_with(1, 2, -1)); });
    ASSERT_TRUE(found) << kind;
    EXPECT_EQ(found->place.pass, Pass::forward);
    EXPECT_EQ(found->place.op, kind == std::string("log") ? "aten::log" : "aten::log_");
    EXPECT_EQ(found->place.path, "stage.block");
    EXPECT_EQ(found->index, (std::vector<int64_t>{1, 2}));
    EXPECT_TRUE(std::isnan(found->value));
    EXPECT_TRUE(found->inputs_finite) << kind;
    EXPECT_NE(found->describe().find("in stage.block, [1, 2] is"), std::string::npos) << found->describe();
  }
}

TEST(WatchNonFinite, NamesAnOverflowInAModuleOfItsOwn) {
  StagedNet net;
  {
    const at::NoGradGuard no_grad;
    net->block->first->weight[3][0] = 1e30;
  }
  NumericsWatch watch(*net);
  const auto found = first_nonfinite(watch, [&] { return net(ones_with(2, 0, -1e30)); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place.op, "aten::matmul");
  EXPECT_EQ(found->place.path, "stage.block.first");
  EXPECT_EQ(found->index, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(found->value, -kInf);
}

TEST(WatchNonFinite, NamesTheNodeOfAGraphModule) {
  StagedNet net("log");
  const auto graph = ulp::capture(net, {torch::ones({3, 4})});
  NumericsWatch watch(*graph);
  const auto found = first_nonfinite(watch, [&] { return graph->forward(ones_with(0, 3, 0)); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place.path, "stage.block");
  EXPECT_EQ(found->place.node, "log");
  EXPECT_EQ(found->value, -kInf);
}

TEST(WatchNonFinite, NamesTheBackwardOpByItsForwardModule) {
  for (const bool captured : {false, true}) {
    StagedNet net("sqrt");
    std::shared_ptr<ulp::graph::GraphModule> graph;
    if (captured) graph = ulp::capture(net, {torch::ones({3, 4})});
    NumericsWatch watch(captured ? static_cast<nn::Module&>(*graph) : *net);
    // sqrt(0) is 0, its derivative is not finite.
    const auto found = first_nonfinite(watch, [&] {
      const at::Tensor x = ones_with(2, 1, 0);
      return captured ? graph->forward(x) : net(x);
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->place.pass, Pass::backward);
    EXPECT_EQ(found->place.autograd_node, "SqrtBackward0");
    EXPECT_EQ(found->place.path, "stage.block");
    EXPECT_EQ(found->index, (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(found->value, kInf);
    EXPECT_TRUE(found->inputs_finite);
    if (captured) {
      EXPECT_EQ(found->place.node, "sqrt");
    }
  }
}

TEST(WatchNonFinite, SaysWhenTheInputsWereToBlame) {
  StagedNet net;
  NumericsWatch watch(*net);
  const auto found = first_nonfinite(watch, [&] { return net(ones_with(0, 1, kInf)); });
  ASSERT_TRUE(found);
  // Infinity times the zeros of the weight: a NaN where there was none, but not from finite values.
  EXPECT_EQ(found->place.op, "aten::matmul");
  EXPECT_FALSE(found->inputs_finite);
  EXPECT_NE(found->describe().find("its inputs were not finite"), std::string::npos);
}

TEST(WatchNonFinite, AnInPlaceOpOnPartOfATensorIsBlamedItself) {
  StagedNet net;
  NumericsWatch watch(*net);
  const auto found = first_nonfinite(watch, [&] {
    at::Tensor x = torch::ones({3, 4});
    x.select(1, 2).div_(0);  // a column: not dense in memory
    return net(ones_with(0, 0, 1)) + x.sum() * 0;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place.op, "aten::div_");
  EXPECT_TRUE(found->inputs_finite) << found->describe();
}

TEST(WatchNonFinite, MasksOfInfinityAreNoFault) {
  at::Tensor scores = torch::ones({2, 4, 4}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"scores", scores}});
  const auto found = first_nonfinite(watch, [&] {
    const at::Tensor mask = torch::full({4, 4}, -kInf).triu(1);
    const at::Tensor masked = (scores + mask).masked_fill(mask.isneginf(), -kInf);
    return masked.softmax(-1) * torch::arange(4);
  });
  EXPECT_FALSE(found) << found->describe();
}

TEST(WatchNonFinite, UninitialisedMemoryIsNoFault) {
  at::Tensor w = torch::ones({64}).requires_grad_();
  NumericsWatch watch(NamedTensors{{"w", w}});
  const auto found = first_nonfinite(watch, [&] {
    at::Tensor memory = torch::empty({64});
    memory.copy_(w);
    return memory;
  });
  EXPECT_FALSE(found) << found->describe();
  for (const OpStats& op : watch.summary().ops) EXPECT_NE(op.place.op, "aten::empty");
}

TEST(WatchNonFinite, AFailedForwardPassIsStillExplained) {
  StagedNet net("log");
  NumericsWatch watch(*net);
  try {
    auto step = watch.begin_step();
    if (net(ones_with(1, 1, -5)).sum().isnan().item<bool>()) throw std::runtime_error("loss is NaN");
    step.end();
  } catch (const std::runtime_error&) {
  }
  ASSERT_EQ(watch.summary().nonfinite.size(), 1u);
  EXPECT_EQ(watch.summary().nonfinite[0].place.op, "aten::log");
}

TEST(WatchNonFinite, ASkippedStepNamesTheGradientAndArmsTheNext) {
  StagedNet net;
  NumericsWatch watch(*net, {.every = 100});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler({.init_scale = 2.0});
  for (int i = 0; i < 5; ++i) {
    auto step = watch.begin_step(scaler.get_scale());
    EXPECT_EQ(step.sampled(), i == 0 || i == 3) << i;
    optimizer.zero_grad();
    scaler.scale(net(torch::ones({3, 4})).sum()).backward();
    if (i == 2) net->block->second->weight.mutable_grad()[1][3] = kInf;
    step.gradients();
    step.end(scaler.step(optimizer));
    scaler.update();
  }
  const WatchSummary& summary = watch.summary();
  ASSERT_EQ(summary.skipped.size(), 1u);
  EXPECT_EQ(summary.skipped[0].step, 2);
  EXPECT_EQ(summary.skipped[0].scale, 2);
  EXPECT_EQ(summary.skipped[0].cause,
            "gradient of stage.block.second.weight: inf at [1, 3]; 1 of 2 gradients are not finite");
  EXPECT_EQ(summary.steps[2].result, StepResult::skipped_nonfinite);
  EXPECT_EQ(summary.steps[3].scale, 1);
}

TEST(WatchNonFinite, ASampledSkippedStepNamesTheOpAsWell) {
  StagedNet net("sqrt");
  NumericsWatch watch(*net);
  auto step = watch.begin_step();
  net(ones_with(2, 1, 0)).sum().backward();
  step.gradients();
  step.end(StepResult::skipped_nonfinite);
  const std::string& cause = watch.summary().skipped.at(0).cause;
  EXPECT_NE(cause.find("gradient of stage.block.first.weight"), std::string::npos) << cause;
  EXPECT_NE(cause.find("SqrtBackward0 in stage.block"), std::string::npos) << cause;
}

TEST(WatchNonFinite, AStepSkippedForTheScaleSaysSo) {
  StagedNet net;
  NumericsWatch watch(*net);
  auto step = watch.begin_step(0x1p-140);
  step.end(StepResult::skipped_underflow);
  EXPECT_EQ(watch.summary().skipped.at(0).cause, "1 / loss scale is infinite; the gradients are finite");
}

TEST(WatchNonFinite, WithoutOpsTheGradientIsNamed) {
  StagedNet net("sqrt");
  NumericsWatch watch(*net, {.ops = false});
  const auto found = first_nonfinite(watch, [&] { return net(ones_with(2, 1, 0)); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place.op, "gradient of stage.block.first.weight");
  EXPECT_EQ(found->place.path, "stage.block.first");
  EXPECT_TRUE(watch.summary().ops.empty());
}

}  // namespace
