#include "ulp/runtime/engine/storage.h"

#include <gtest/gtest.h>

#include "support.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

const Storage& storage_of(const StoragePlan& plan, int32_t tensor) {
  return plan.storages[static_cast<size_t>(plan.of_tensor[static_cast<size_t>(tensor)])];
}

TEST(Storage, InputsAndOutputsLiveInTheCallersBuffers) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 8});
  const int32_t y = b.linear(x, 4);
  b.output(y);
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_EQ(storage_of(plan, x).owner, Storage::Owner::caller_input);
  EXPECT_EQ(storage_of(plan, y).owner, Storage::Owner::caller_output);
}

TEST(Storage, ReluTakesOverMemoryThatNobodyReadsLater) {
  Builder b(Numbers::f32);
  const int32_t y = b.linear(b.input({kBatch, 8}), 4);
  const int32_t z = b.op(Op::relu, {y}, ActivationAttributes{Activation::relu});
  b.output(b.linear(z, 4));
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_EQ(plan.of_tensor[static_cast<size_t>(y)], plan.of_tensor[static_cast<size_t>(z)]);
}

TEST(Storage, ReluLeavesMemoryThatIsReadLater) {
  Builder b(Numbers::f32);
  const int32_t y = b.linear(b.input({kBatch, 8}), 4);
  const int32_t z = b.op(Op::relu, {y}, ActivationAttributes{Activation::relu});
  b.output(b.op(Op::add, {y, z}));
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_NE(plan.of_tensor[static_cast<size_t>(y)], plan.of_tensor[static_cast<size_t>(z)]);
}

TEST(Storage, ReluNeverOverwritesTheCallersInputOrAnOutput) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 8});
  const int32_t y = b.op(Op::relu, {x}, ActivationAttributes{Activation::relu});
  const int32_t z = b.op(Op::relu, {y}, ActivationAttributes{Activation::relu6});
  b.output(y);
  b.output(z);
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_NE(plan.of_tensor[static_cast<size_t>(x)], plan.of_tensor[static_cast<size_t>(y)]);
  EXPECT_NE(plan.of_tensor[static_cast<size_t>(y)], plan.of_tensor[static_cast<size_t>(z)]);
}

TEST(Storage, AnAliasIsAliveAsLongAsAnyOfItsNames) {
  // flatten of one pixel is an alias; relu must not write into it while the unflattened name is still read.
  Builder b(Numbers::f32);
  const int32_t pooled = b.op(Op::global_avg_pool, {b.enter(b.input({kBatch, 4, 3, 3}))});
  const int32_t flat = b.op(Op::flatten, {pooled});
  const int32_t activated = b.op(Op::relu, {flat}, ActivationAttributes{Activation::relu});
  b.output(b.leave(b.op(Op::relu, {pooled}, ActivationAttributes{Activation::relu6})));
  b.output(b.linear(activated, 3));
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_EQ(plan.of_tensor[static_cast<size_t>(pooled)], plan.of_tensor[static_cast<size_t>(flat)]);
  EXPECT_NE(plan.of_tensor[static_cast<size_t>(flat)], plan.of_tensor[static_cast<size_t>(activated)]);
}

TEST(Storage, AnAliasOfAnInputThatIsAnOutputIsCopied) {
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 2, 3});
  const int32_t flat = b.op(Op::flatten, {x});
  b.output(flat);
  const StoragePlan plan = assign_storage(b.plan);
  EXPECT_NE(plan.of_tensor[static_cast<size_t>(x)], plan.of_tensor[static_cast<size_t>(flat)]);
  Engine engine(b.plan);
  const std::vector<Bytes> inputs = make_inputs(b.plan, 4, 1);
  EXPECT_EQ(run_engine(engine, 4, inputs), inputs);
}

/// A network of random ops with skips and several outputs. Every number in it is exact in the plan's type.
Plan random_plan(Numbers numbers, uint64_t seed) {
  Builder b(numbers, seed);
  Random& random = b.random();
  const int64_t channels = random.integer(1, 6), size = random.integer(4, 7);
  std::vector<int32_t> images = {b.enter(b.input({kBatch, channels, size, size}))};
  if (random.chance(30)) images.push_back(b.enter(b.input({kBatch, channels, size, size})));
  std::vector<int32_t> made;
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  for (int64_t i = random.integer(3, 14); i > 0; --i) {
    const int32_t x = random.pick(images);
    int32_t y;
    switch (random.integer(0, 5)) {
      case 0:
        y = b.op(Op::relu, {x}, ActivationAttributes{Activation::relu6});
        break;
      case 1:
        y = b.op(Op::add, {x, random.pick(images)}, ActivationAttributes{Activation::relu6});
        break;
      case 2:
        y = b.op(Op::max_pool, {x}, PoolAttributes{{same}});
        break;
      case 3:
        y = b.conv(x, channels, same, Activation::relu6, 1, random.pick(images));
        break;
      default:
        y = b.conv(x, channels, same, Activation::relu6, random.chance(50) ? channels : 1);
    }
    images.push_back(y);
    made.push_back(y);
  }
  const int32_t flat =
      b.op(Op::flatten,
           {b.op(Op::max_pool, {images.back()}, PoolAttributes{{{.kernel_h = size, .kernel_w = size}}})});
  const int32_t features =
      b.linear(b.op(Op::relu, {flat}, ActivationAttributes{Activation::relu6}), 5, Activation::relu6);
  b.output(features);
  if (random.chance(50)) b.output(flat);
  if (random.chance(50))
    b.output(b.leave(b.op(Op::relu, {random.pick(made)}, ActivationAttributes{Activation::relu})));
  if (random.chance(50)) b.output(random.pick(made));
  return b.plan;
}

TEST(Storage, RandomPlansGiveWhatPlainLoopsGive) {
  for (const Numbers numbers : {Numbers::f32, Numbers::bf16, Numbers::u8}) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(std::string(to_string(type_of(numbers))) + " seed " + std::to_string(seed));
      const Plan plan = random_plan(numbers, seed);
      Engine engine(plan, {.threads = 2});
      for (const int64_t batch : {3, 1}) {
        const std::vector<Bytes> inputs = make_inputs(plan, batch, seed);
        const std::vector<Bytes> expected = run_plainly(plan, batch, inputs);
        const std::vector<Bytes> got = run_engine(engine, batch, inputs);
        for (size_t i = 0; i < expected.size(); ++i) expect_same(engine.outputs()[i], expected[i], got[i]);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace ulp::runtime
