// Engines whose blocks of convolutions run by rows: which steps that are, and the same bits either way.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/engine/storage.h"
#include "ulp/runtime/ops/conv_block.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

Window window_3x3(int64_t stride = 1) {
  return {.kernel_h = 3, .kernel_w = 3, .stride_h = stride, .stride_w = stride, .pad_h = 1, .pad_w = 1};
}

/// Two blocks of three layers, the second one with a residual, then one of two.
Plan mobile_plan(Numbers numbers, int64_t size = 12, int64_t wide = 32) {
  Builder b(numbers, 5);
  int32_t x = b.enter(b.input({kBatch, 8, size, size}), Layout::nhwc);
  x = b.conv(b.conv(b.conv(x, wide, {}, Activation::relu6), wide, window_3x3(2), Activation::relu6, wide), 8,
             {});
  const int32_t before = x;
  x = b.conv(b.conv(x, wide, {}, Activation::relu), wide, window_3x3(), Activation::relu, wide);
  x = b.conv(x, 8, {}, Activation::none, 1, before);
  x = b.conv(b.conv(x, 8, window_3x3(), Activation::relu, 8), 16, {});
  b.output(b.leave(x));
  return b.plan;
}

/// A block around a dense layer with a residual, then one around a depthwise layer that wants the 1x1 layer of another one.
Plan dense_plan(Numbers numbers) {
  Builder b(numbers, 5);
  const int32_t x = b.enter(b.input({kBatch, 20, 9, 9}), Layout::nhwc);
  int32_t y = b.conv(b.conv(x, 16, {}, Activation::relu), 16, window_3x3(), Activation::relu);
  y = b.conv(y, 20, {}, Activation::relu, 1, x);
  y = b.conv(b.conv(y, 16, window_3x3(2), Activation::relu), 24, {}, Activation::relu);
  y = b.conv(b.conv(y, 24, window_3x3(), Activation::relu, 24), 8, {});
  b.output(b.leave(y));
  return b.plan;
}

bool runs_by_rows() {
  return kernels::available_isas().size() > 1 && kernels::selected_isa() != kernels::Isa::portable;
}

TEST(ConvBlocks, AreFoundInOrder) {
  const Plan plan = mobile_plan(Numbers::f32);
  const std::vector<StepRange> found = find_conv_blocks(plan);
  ASSERT_EQ(found.size(), 3U);
  for (const StepRange& range : found) EXPECT_EQ(plan.steps[range.last].op, Op::conv);
  EXPECT_EQ(found[0].last - found[0].first, 2U);
  EXPECT_EQ(found[1].first, found[0].last + 1);
  EXPECT_EQ(found[1].last - found[1].first, 2U);
  EXPECT_EQ(found[2], (StepRange{found[1].last + 1, found[1].last + 2}));
}

TEST(ConvBlocks, DepthwiseOnesComeFirst) {
  const std::vector<StepRange> found = find_conv_blocks(dense_plan(Numbers::f32));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].last - found[0].first, 2U) << "around the dense layer";
  EXPECT_EQ(found[1], (StepRange{found[0].last + 2, found[0].last + 4}));
}

TEST(ConvBlocks, DenseOnesRunByRowsIfToldTo) {
  if (!runs_by_rows()) GTEST_SKIP() << "plain loops do not run by rows";
  const Plan plan = dense_plan(Numbers::f32);
  const std::vector<Bytes> inputs = make_inputs(plan, 3, 3);
  const auto last = find_conv_blocks(plan)[0].last;
  Engine never(plan, {.threads = 2, .blocks = DepthFirst::never}),
      measure(plan, {.threads = 2, .blocks = DepthFirst::measure}),
      always(plan, {.threads = 2, .blocks = DepthFirst::always});
  EXPECT_EQ(profile_of(measure, inputs, 3)[last].note, "");
  EXPECT_EQ(profile_of(always, inputs, 3)[last].note, "3 layers by rows");
  EXPECT_EQ(run_engine(always, 3, inputs), run_engine(never, 3, inputs));
}

TEST(ConvBlocks, WhatOthersReadEndsABlock) {
  Builder b(Numbers::f32);
  const int32_t x = b.enter(b.input({kBatch, 8, 6, 6}), Layout::nhwc);
  const int32_t wide = b.conv(x, 16, {}), middle = b.conv(wide, 16, window_3x3(), Activation::none, 16);
  const int32_t last = b.conv(middle, 8, {});
  b.output(b.leave(last));
  Plan plan = b.plan;
  EXPECT_EQ(find_conv_blocks(plan).size(), 1U);
  plan.outputs.push_back(middle);
  EXPECT_TRUE(find_conv_blocks(plan).empty());
  plan.outputs = {b.plan.outputs[0], wide};
  ASSERT_EQ(find_conv_blocks(plan).size(), 1U);
  EXPECT_EQ(find_conv_blocks(plan)[0].last - find_conv_blocks(plan)[0].first, 1U)
      << "the depthwise layer begins it";
}

TEST(ConvBlocks, KeepWhatTheyReadAndHoldNothingBetween) {
  const Plan plan = mobile_plan(Numbers::f32);
  const std::vector<StepRange> blocks = find_conv_blocks(plan);
  const StoragePlan storage = assign_storage(plan, blocks);
  for (const StepRange& block : blocks) {
    const auto input = static_cast<size_t>(plan.steps[block.first].inputs[0]);
    EXPECT_GE(storage.storages[static_cast<size_t>(storage.of_tensor[input])].last,
              static_cast<int>(block.last));
    for (size_t s = block.first; s < block.last; ++s)
      EXPECT_EQ(storage.of_tensor[static_cast<size_t>(plan.steps[s].output)], -1);
  }
}

TEST(ConvBlocks, GiveTheSameBits) {
  for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8}) {
    for (const Plan& plan : {mobile_plan(numbers), dense_plan(numbers)}) {
      for (const int threads : {1, 3}) {
        Engine apart(plan, {.threads = threads, .blocks = DepthFirst::never});
        Engine joined(plan, {.threads = threads, .blocks = DepthFirst::always});
        for (const int64_t batch : {1, 5, 19}) {
          const std::vector<Bytes> inputs = make_inputs(plan, batch, 3);
          EXPECT_EQ(run_engine(joined, batch, inputs), run_engine(apart, batch, inputs)) << batch;
        }
      }
    }
  }
}

TEST(ConvBlocks, TakeLessMemory) {
  if (!runs_by_rows()) GTEST_SKIP() << "plain loops do not run by rows";
  const Plan plan = mobile_plan(Numbers::f32, 96, 64);
  Engine apart(plan, {.threads = 1, .blocks = DepthFirst::never});
  Engine joined(plan, {.threads = 1, .blocks = DepthFirst::always});
  apart.reserve(4);
  joined.reserve(4);
  EXPECT_LT(2 * joined.arena_bytes(), apart.arena_bytes());
}

TEST(ConvBlocks, ProfilesGiveTheWorkToTheLastStep) {
  if (!runs_by_rows()) GTEST_SKIP() << "plain loops do not run by rows";
  const Plan plan = mobile_plan(Numbers::f32);
  const std::vector<Bytes> inputs = make_inputs(plan, 2, 3);
  Engine apart(plan, {.threads = 1, .blocks = DepthFirst::never});
  Engine joined(plan, {.threads = 1, .blocks = DepthFirst::always});
  const std::vector<StepProfile> all = profile_of(apart, inputs, 2), by_rows = profile_of(joined, inputs, 2);
  ASSERT_EQ(all.size(), by_rows.size());
  const StepRange block = find_conv_blocks(plan)[0];
  double operations = 0;
  for (size_t s = block.first; s <= block.last; ++s) operations += all[s].work.operations;
  EXPECT_EQ(by_rows[block.last].work.operations, operations);
  EXPECT_LT(by_rows[block.last].work.tensor_bytes, all[block.first].work.tensor_bytes);
  EXPECT_EQ(by_rows[block.last].note, "3 layers by rows");
  EXPECT_EQ(by_rows[block.first].work.operations, 0);
  EXPECT_EQ(by_rows[block.first].kernel, "by rows in '" + by_rows[block.last].step + "'");
}

TEST(ConvBlocks, SmallOnesRunOneByOne) {
  const Plan plan = mobile_plan(Numbers::u8);
  Engine engine(plan, {.threads = 1});
  for (const StepProfile& step : profile_of(engine, make_inputs(plan, 1, 3), 1))
    EXPECT_EQ(step.note.find("by rows"), std::string::npos) << step.step;
}

// What was measured decides: a table that says otherwise is believed.
TEST(ConvBlocks, ReadTheTableOfMeasurements) {
  if (!runs_by_rows()) GTEST_SKIP() << "plain loops do not run by rows";
  const TemporaryFolder folder;
  const Plan plan = mobile_plan(Numbers::f32, 48, 48);
  const std::vector<Bytes> inputs = make_inputs(plan, 1, 3);
  const auto blocks = [&] {
    Engine engine(plan, {.threads = 1, .sparse_table = folder / "table"});
    const std::vector<StepProfile> steps = profile_of(engine, inputs, 1);
    return std::ranges::count_if(
        steps, [](const StepProfile& step) { return step.note.find("by rows") != std::string::npos; });
  };
  blocks();
  if (!std::filesystem::exists(folder / "table"))
    GTEST_SKIP() << "this machine's caches leave nothing in doubt";
  nlohmann::json table;
  std::ifstream(folder / "table") >> table;
  const auto say = [&](double faster) {
    for (auto& [layer, findings] : table["layers"].items()) findings[0]["faster"] = faster;
    std::ofstream(folder / "table") << table;
  };
  say(0.5);
  const auto fewest = blocks();
  say(2.0);
  EXPECT_EQ(blocks(), fewest + static_cast<std::ptrdiff_t>(table["layers"].size()));
}

}  // namespace
}  // namespace ulp::runtime
