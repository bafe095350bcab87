// What steps compute and move, against counts by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;
using kernels::MathType;

std::vector<StepProfile> profiled(const Plan& plan, int64_t batch, const EngineOptions& options = {}) {
  Engine engine(plan, options);
  const std::vector<Bytes> inputs = make_inputs(plan, batch, 1);
  std::vector<const void*> in;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  std::vector<Bytes> outputs;
  for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, batch));
  std::vector<void*> out;
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  return engine.profile(batch, in, out);
}

/// Of the last step of this op.
StepWork work_of_op(const Plan& plan, int64_t batch, const std::string& op,
                    const EngineOptions& options = {}) {
  const std::vector<StepProfile> steps = profiled(plan, batch, options);
  const auto found =
      std::find_if(steps.rbegin(), steps.rend(), [&](const auto& step) { return step.op == op; });
  EXPECT_NE(found, steps.rend()) << op;
  return found == steps.rend() ? StepWork{} : found->work;
}

struct KindOfNumbers {
  Numbers numbers;
  MathType math;
  double bytes, bias_bytes;  ///< of an element; of a channel's bias and scale
};
constexpr KindOfNumbers kKinds[] = {{Numbers::f32, MathType::f32, 4, 4},
                                    {Numbers::bf16, MathType::bf16, 2, 4},
                                    {Numbers::u8, MathType::int8, 1, 8}};

TEST(StepWork, OfALinearLayerIsThatOfAMatrixProduct) {
  constexpr int64_t kM = 6, kN = 40, kK = 24;
  for (const KindOfNumbers& kind : kKinds) {
    Builder b(kind.numbers);
    const int32_t x = b.enter(b.input({kBatch, kK}), Layout::plain);
    b.output(b.leave(b.linear(x, kN)));
    const StepWork work = work_of_op(b.plan, kM, "linear");
    EXPECT_EQ(work.math, kind.math);
    EXPECT_EQ(work.operations, 2.0 * kM * kN * kK);
    EXPECT_EQ(work.tensor_bytes, kind.bytes * (kM * kK + kM * kN));
    EXPECT_EQ(work.constant_bytes, kind.bytes * kN * kK + kind.bias_bytes * kN);
    // 2MNK / (2 (MK + NK + MN)) in 16 bits, but for the bias.
    if (kind.numbers == Numbers::bf16) {
      const double article = 2.0 * kM * kN * kK / (2.0 * (kM * kK + kN * kK + kM * kN));
      EXPECT_NEAR(work.operations / (work.bytes() - kind.bias_bytes * kN), article, 1e-12);
    }
  }
}

TEST(StepWork, OfAConvolutionCountsTheWindowOfEachOutput) {
  const Window window{.kernel_h = 3, .kernel_w = 5, .stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 2};
  for (const KindOfNumbers& kind : kKinds) {
    Builder b(kind.numbers);
    const int32_t x = b.enter(b.input({kBatch, 8, 9, 7}));
    b.output(b.leave(b.conv(x, 12, window, Activation::none, 4)));
    const StepWork work = work_of_op(b.plan, 3, "conv");
    const double outputs = 3.0 * 12 * 5 * 7;
    EXPECT_EQ(work.math, kind.math);
    EXPECT_EQ(work.operations, 2 * outputs * (8.0 / 4) * 3 * 5);
    EXPECT_EQ(work.tensor_bytes, kind.bytes * (3.0 * 8 * 9 * 7 + outputs));
    EXPECT_EQ(work.constant_bytes, kind.bytes * 12 * (8.0 / 4) * 3 * 5 + kind.bias_bytes * 12);
  }
}

TEST(StepWork, PixelsBetweenWindowsAreNotRead) {
  Builder b(Numbers::f32);
  const int32_t x = b.enter(b.input({kBatch, 4, 8, 8}));
  b.output(b.leave(b.conv(x, 4, {.stride_h = 2, .stride_w = 2})));
  EXPECT_EQ(work_of_op(b.plan, 1, "conv").tensor_bytes, 4.0 * (4 * 4 * 4 + 4 * 4 * 4));
}

TEST(StepWork, OfBytesIsDoneOnBytes) {
  for (const auto& [numbers, math] :
       {std::pair{Numbers::u8, MathType::int8}, std::pair{Numbers::bf16, MathType::f32},
        std::pair{Numbers::f32, MathType::f32}}) {
    Builder b(numbers);
    const int32_t x = b.enter(b.input({kBatch, 4, 8, 8}));
    PoolAttributes halves;
    halves.window.kernel_h = halves.window.kernel_w = halves.window.stride_h = halves.window.stride_w = 2;
    b.output(b.leave(b.op(Op::max_pool, {x}, halves)));
    const StepWork work = work_of_op(b.plan, 2, "max_pool");
    EXPECT_EQ(work.math, math);
    EXPECT_EQ(work.operations, 2.0 * 4 * 4 * 4 * 4);
  }
}

TEST(StepWork, GrowsWithTheBatchButForWeights) {
  for (const Plan& plan : {small_network(Numbers::u8), small_text_network(), small_binary_network()}) {
    const std::vector<StepProfile> two = profiled(plan, 2), six = profiled(plan, 6);
    for (size_t i = 0; i < two.size(); ++i) {
      EXPECT_DOUBLE_EQ(six[i].work.operations, 3 * two[i].work.operations) << two[i].step;
      EXPECT_DOUBLE_EQ(six[i].work.tensor_bytes, 3 * two[i].work.tensor_bytes) << two[i].step;
      if (two[i].op != "embedding") {
        EXPECT_EQ(six[i].work.constant_bytes, two[i].work.constant_bytes) << two[i].step;
      }
      if (two[i].kernel != "none") {
        EXPECT_GT(two[i].work.bytes(), 0) << two[i].step;
      }
    }
  }
}

TEST(StepWork, OfATableIsTheRowsLookedUp) {
  Builder b(Numbers::f32);
  const int32_t ids = b.input({kBatch, 6}, DataType::i64);
  b.output(b.text({.op = Op::embedding, .inputs = {ids}}, {{"weight", {20, 8}}}));
  EXPECT_EQ(work_of_op(b.plan, 1, "embedding").constant_bytes, 6.0 * 8 * 4);
  EXPECT_EQ(work_of_op(b.plan, 3, "embedding").constant_bytes, 18.0 * 8 * 4);
  EXPECT_EQ(work_of_op(b.plan, 5, "embedding").constant_bytes, 20.0 * 8 * 4) << "each row once";
}

TEST(StepWork, OfCausalAttentionLeavesOutWhatIsHidden) {
  for (const bool causal : {false, true}) {
    Builder b(Numbers::f32);
    const int32_t x = b.input({kBatch, 6, 8});
    b.output(b.text({.op = Op::attention,
                     .inputs = {x, x, x},
                     .attributes = AttentionAttributes{.heads = 2, .causal = causal}}));
    const StepWork work = work_of_op(b.plan, 2, "attention");
    const double keys = causal ? 1 + 2 + 3 + 4 + 5 + 6 : 6 * 6;
    EXPECT_EQ(work.operations, 2 * (2 * 2 * keys * 8)) << causal;
    EXPECT_EQ(work.tensor_bytes, 4.0 * 2 * (6 * 8 + 6 * 8)) << "q, k and v are one tensor";
  }
  Builder b(Numbers::f32);
  const int32_t x = b.input({kBatch, 6, 8});
  b.output(b.text({.op = Op::attention,
                   .inputs = {x, x, x},
                   .attributes = AttentionAttributes{.heads = 2, .causal = true, .window = 2}}));
  const double keys = 1 + 2 + 2 + 2 + 2 + 2;
  EXPECT_DOUBLE_EQ(work_of_op(b.plan, 2, "attention").operations, 2 * (2 * 2 * keys * 8));
}

TEST(StepWork, OfARecurrentLayerMultipliesAllWeightsAtEachStep) {
  for (const bool int8 : {false, true}) {
    Builder b(Numbers::f32);
    const int32_t x = b.input({kBatch, 5, 3});
    b.output(b.recurrent(Op::lstm, x, 4, int8));
    const StepWork work = work_of_op(b.plan, 2, "lstm");
    EXPECT_EQ(work.operations, 2.0 * 2 * 5 * (16 * 3 + 16 * 4));
    EXPECT_EQ(work.math, int8 ? MathType::int8 : MathType::f32);
  }
}

TEST(StepWork, OfBinaryLayersCountsBits) {
  for (const StepProfile& step : profiled(small_binary_network(), 2)) {
    if (step.op != "binary_conv") continue;
    EXPECT_EQ(step.work.math, MathType::binary);
    EXPECT_GT(step.work.operations, 8 * 2 * step.work.constant_bytes)
        << "each bit of the weights, several times";
  }
}

TEST(StepWork, ZerosThatAKernelLeavesOutDoNotCount) {
  Builder b(Numbers::f32);
  const int32_t x = b.enter(b.input({kBatch, 64}), Layout::plain);
  b.output(b.leave(b.linear(x, 64)));
  Plan plan = b.plan;
  for (auto& [name, constant] : plan.constants) {
    if (constant.shape.size() != 2) continue;
    auto* weights = reinterpret_cast<float*>(constant.bytes.data());
    std::fill_n(weights, 48 * 64, 0.0F);  // of four blocks of 16 outputs one is left
    std::fill_n(weights + 48 * 64, 16 * 64, 1.0F);
  }
  const StepWork dense = work_of_op(plan, 4, "linear", {.sparse = SparseWeights::never});
  const StepWork sparse = work_of_op(plan, 4, "linear", {.sparse = SparseWeights::always});
  EXPECT_EQ(dense.operations, 2.0 * 4 * 64 * 64);
  EXPECT_EQ(sparse.operations, dense.operations / 4);
  EXPECT_EQ(sparse.tensor_bytes, dense.tensor_bytes);
  EXPECT_LT(sparse.constant_bytes, dense.constant_bytes);
}

}  // namespace
}  // namespace ulp::runtime
