// Measured memory: plans lower the peak as they say, and gradients stay the same to the bit.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "error_of.h"
#include "memory/step.h"
#include "memory/work_space.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/memory/checkpoint/costs.h"
#include "ulp/models/bert.h"
#include "ulp/models/registry.h"

namespace {

using ulp::graph::GraphModule;
using ulp::memory::CheckpointPlan;
using ulp::memory::SavedFormat;
using ulp::memory::StorageLocation;
using ulp::test::expect_same;
using ulp::test::step;

struct Bytes {
  int64_t after_forward = 0, peak = 0;
};

/// Activations of a step whose parameters have gradients already. Buffers are left as they were.
/// `file_below`: what is on its way to a file gets there before the bytes behind the forward are looked at, for which
/// this waits until they are fewer, ten seconds at most.
Bytes bytes_of_step(GraphModule& module, const std::vector<torch::Tensor>& inputs, bool bf16 = false,
                    int64_t file_below = std::numeric_limits<int64_t>::max()) {
  for (torch::Tensor& parameter : module.parameters())
    parameter.mutable_grad() = torch::zeros_like(parameter);
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : module.buffers()) buffers.push_back(buffer.clone());
  const ulp::measure::MemoryMeter meter;
  Bytes bytes;
  torch::Tensor loss;
  {
    const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, bf16);
    loss = ulp::test::loss_of(module.forward_all(inputs));
  }
  for (int i = 0; i < 1000 && meter.live_bytes() >= file_below; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  bytes.after_forward = meter.live_bytes();
  loss.backward();
  bytes.peak = meter.peak_bytes();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) module.buffers()[i].copy_(buffers[i]);
  return bytes;
}

/// 36 layers of 64 x 64 numbers, tanh behind each.
std::shared_ptr<GraphModule> deep_network() {
  torch::manual_seed(1);
  torch::nn::Sequential layers;
  for (int i = 0; i < 36; ++i) {
    layers->push_back(torch::nn::Linear(64, 64));
    layers->push_back(torch::nn::Tanh());
  }
  return ulp::capture(layers, {torch::randn({2, 64})});
}

constexpr int64_t kValue = 256 * 64 * 4;  // bytes of a value of the deep network at batch 256

TEST(CheckpointMemory, TheSquareRootPlanKeepsTheSquareRoot) {
  const auto module = deep_network();
  const std::vector<torch::Tensor> inputs = {torch::randn({256, 64})};
  const Bytes whole = bytes_of_step(*module, inputs);
  // tanh saves its result, which the next layer saves, too; the loss saves one more.
  EXPECT_NEAR(static_cast<double>(whole.after_forward), 37.0 * kValue, 0.1 * kValue);
  const CheckpointPlan plan = ulp::memory::plan_sqrt(module->graph());
  ulp::memory::checkpoint(*module, plan);
  const Bytes less = bytes_of_step(*module, inputs);
  const auto segments = static_cast<int64_t>(plan.segments.size());
  // A value for each segment, and what the calls behind the last one save.
  EXPECT_LE(less.after_forward, (segments + 6) * kValue);
  EXPECT_LE(less.peak, (segments + 14) * kValue);
  EXPECT_LT(less.peak, whole.peak * 7 / 10);
}

TEST(CheckpointMemory, NothingIsKeptWithoutGrad) {
  const auto module = deep_network();
  ulp::memory::checkpoint(*module, ulp::memory::plan_sqrt(module->graph()));
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = torch::randn({256, 64});
  const ulp::measure::MemoryMeter meter;
  const torch::Tensor result = module->forward(input);
  EXPECT_EQ(meter.live_bytes(), kValue);
}

TEST(CheckpointMemory, AnErrorInTheForwardLeavesNothingBehind) {
  const auto module = deep_network();
  ulp::memory::checkpoint(*module, ulp::memory::plan_sqrt(module->graph()));
  const ulp::measure::MemoryMeter meter;
  EXPECT_ERROR(module->forward(torch::randn({4, 65})), "65");
  EXPECT_EQ(meter.live_bytes(), 0);
  {
    const torch::Tensor lost = module->forward(torch::randn({4, 64}));  // nobody goes back
  }
  EXPECT_EQ(meter.live_bytes(), 0);
}

struct Case {
  std::string name;
  std::shared_ptr<GraphModule> module;
  std::vector<torch::Tensor> inputs;
  bool bf16 = false;
};

std::vector<Case> cases() {
  torch::manual_seed(1);
  ulp::models::BertConfig config = ulp::models::BertConfig::tiny();
  config.attention_dropout = config.dropout = 0.1;
  const auto bert = ulp::models::make_bert(config);
  const auto resnet = ulp::models::make_model("resnet20");
  bert->train();
  resnet->train();
  std::vector<Case> made;
  for (const bool bf16 : {false, true}) {
    made.push_back({"bert",
                    ulp::capture(bert, {torch::randint(1, 200, {2, 32})}),
                    {torch::randint(1, 200, {8, 32})},
                    bf16});
    made.push_back({"resnet20",
                    ulp::capture(resnet, {torch::randn({2, 3, 32, 32})}),
                    {torch::randn({4, 3, 32, 32})},
                    bf16});
  }
  made.push_back({"deep", deep_network(), {torch::randn({256, 64})}});
  for (Case& one : made) one.module->train();
  return made;
}

ulp::memory::Costs costs_of(const Case& one) {
  const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, one.bf16);
  return ulp::memory::measure_costs(*one.module, one.inputs, 1);
}

/// What an operator takes while it runs. Without AVX-512, products in bf16 widen their operands.
int64_t work_space_of(const Case& one) {
  const ulp::test::WorkSpace work_space;
  step(*one.module, one.inputs, one.bf16);
  return work_space.bytes();
}

/// LibTorch's threads hold buffers of their own, a few KB, whose lives overlap in one run and not in another.
int64_t thread_buffers() {
  return int64_t{4 << 10} * torch::get_num_threads();
}

TEST(BudgetPlan, IsObeyedAndGivesTheSameBits) {
  for (const Case& one : cases()) {
    const auto expected = step(*one.module, one.inputs, one.bf16);
    const Bytes whole = bytes_of_step(*one.module, one.inputs, one.bf16);
    ulp::memory::Costs costs = costs_of(one);
    costs.margin =
        std::max<int64_t>(0, whole.peak - ulp::memory::peak_without_plan(one.module->graph(), costs));
    EXPECT_LT(costs.margin, whole.peak / 4) << one.name;
    // The margin is what was taken at the peak without a plan; the plan has its peak elsewhere.
    const int64_t beside = std::max<int64_t>(0, work_space_of(one) - costs.margin);
    for (const double share : {0.8, 0.6}) {
      const auto budget = static_cast<int64_t>(share * static_cast<double>(whole.peak));
      const CheckpointPlan plan = ulp::memory::plan_for_budget(one.module->graph(), costs, budget);
      EXPECT_FALSE(plan.segments.empty());
      ulp::memory::checkpoint(*one.module, plan);
      const Bytes found = bytes_of_step(*one.module, one.inputs, one.bf16);
      EXPECT_LE(found.peak, budget + thread_buffers() + beside)
          << one.name << (one.bf16 ? " bf16 " : " fp32 ") << share;
      expect_same(expected, step(*one.module, one.inputs, one.bf16), one.name);
    }
    ulp::memory::checkpoint(*one.module, {});
  }
}

TEST(BudgetPlan, KeepsEverythingWhereItFitsAndSaysWhatItNeedsWhereNot) {
  const auto module = deep_network();
  const auto costs = ulp::memory::measure_costs(*module, {torch::randn({256, 64})}, 1);
  const int64_t whole = ulp::memory::peak_without_plan(module->graph(), costs);
  EXPECT_TRUE(ulp::memory::plan_for_budget(module->graph(), costs, whole + 1024).segments.empty());
  EXPECT_ERROR(ulp::memory::plan_for_budget(module->graph(), costs, 1000), "at least");
  EXPECT_ERROR(ulp::memory::plan_for_budget(module->graph(), costs, -1), "got -1");
}

TEST(SavedValues, MasksAndFilesGiveTheSameBits) {
  for (const Case& one : cases()) {
    const auto expected = step(*one.module, one.inputs, one.bf16);
    const Bytes whole = bytes_of_step(*one.module, one.inputs, one.bf16);
    CheckpointPlan masks, file, both = ulp::memory::plan_sqrt(one.module->graph());
    masks.saved.masks = both.saved.masks = true;
    file.saved.place = both.saved.place = StorageLocation::file;
    masks.saved.smallest = file.saved.smallest = both.saved.smallest = 256;
    for (const CheckpointPlan& plan : {masks, file, both}) {
      ulp::memory::checkpoint(*one.module, plan);
      expect_same(expected, step(*one.module, one.inputs, one.bf16), one.name);
      const bool in_file = plan.saved.place == StorageLocation::file;
      const int64_t below = in_file ? whole.after_forward / 4 : std::numeric_limits<int64_t>::max();
      const Bytes found = bytes_of_step(*one.module, one.inputs, one.bf16, below);
      EXPECT_LT(found.after_forward, below) << one.name;
      if (one.name == "bert") {
        EXPECT_LT(found.after_forward, whole.after_forward);
      }
    }
    ulp::memory::checkpoint(*one.module, {});
  }
}

TEST(SavedValues, OfReluTakeABit) {
  torch::nn::Sequential layers;
  for (int i = 0; i < 8; ++i) {
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::Dropout(0.5));
  }
  const auto module = ulp::capture(layers, {torch::randn({2, 4096})});
  module->train();
  const torch::Tensor input = torch::randn({16, 4096}, torch::requires_grad());
  const auto run = [&] {
    torch::manual_seed(2);
    const ulp::measure::MemoryMeter meter;
    const torch::Tensor loss = module->forward(input).sum();
    const int64_t live = meter.live_bytes();
    return std::make_pair(live, torch::autograd::grad({loss}, {input})[0]);
  };
  const auto whole = run();
  CheckpointPlan plan;
  plan.saved.masks = true;
  ulp::memory::checkpoint(*module, plan);
  const auto bits = run();
  EXPECT_TRUE(bits.second.equal(whole.second));
  // Of each pair a relu's result and a dropout's noise; 16 masks of 8 KiB instead.
  EXPECT_LE(bits.first, 16 * 8192 + 4096);
  EXPECT_GE(whole.first, 16 * 16 * 4096 * 4);
}

TEST(SavedValues, InFewerBitsGiveGradientsWhoseMeanIsRight) {
  const auto module = deep_network();
  const std::vector<torch::Tensor> inputs = {torch::randn({64, 64})};
  const auto gradient = [&] {
    module->zero_grad();
    module->forward(inputs).square().sum().backward();
    return module->named_parameters()["0.weight"].grad().clone();
  };
  const torch::Tensor exact = gradient();
  const Bytes whole = bytes_of_step(*module, inputs);
  for (const auto& [format, share, error] : {std::tuple{SavedFormat::bf16, 0.55, 0.05},
                                             {SavedFormat::int8, 0.35, 0.1},
                                             {SavedFormat::int4, 0.25, 1.0}}) {
    CheckpointPlan plan;
    plan.saved.format = format;
    plan.saved.smallest = 0;
    ulp::memory::checkpoint(*module, plan);
    EXPECT_LT(bytes_of_step(*module, inputs).after_forward, share * static_cast<double>(whole.after_forward));
    const torch::Tensor found = gradient();
    EXPECT_FALSE(found.equal(exact)) << ulp::enum_name(format);
    EXPECT_LT(((found - exact).norm() / exact.norm()).item<double>(), error) << ulp::enum_name(format);
  }
}

TEST(SavedValues, MayHaveFormatsOfTheirOwn) {
  const auto module = deep_network();
  const std::vector<torch::Tensor> inputs = {torch::randn({256, 64})};
  const Bytes whole = bytes_of_step(*module, inputs);
  CheckpointPlan plan;
  for (const auto& node : module->graph().nodes()) {
    if (node->is("aten::tanh") && plan.formats.size() < 18) plan.formats[node->output()] = SavedFormat::bf16;
  }
  ASSERT_EQ(plan.formats.size(), 18u);
  ulp::memory::checkpoint(*module, plan);
  EXPECT_NEAR(static_cast<double>(bytes_of_step(*module, inputs).after_forward),
              static_cast<double>(whole.after_forward - 9 * kValue), 0.2 * kValue);
}

}  // namespace
