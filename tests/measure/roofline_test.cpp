// Work below a made-up roof, by hand.
#include "ulp/measure/roofline.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"

namespace {

using namespace ulp::measure;
using ulp::kernels::MathType;
using ulp::runtime::StepWork;

/// 100 G/s in f32; caches of 1 and 10 MB with 1000 and 100 GB/s, memory with 10 GB/s.
Peaks machine() {
  return {.threads = 1,
          .isa = "avx2",
          .math = {{MathType::f32, "avx2", "", 100e9}, {MathType::int8, "avx2", "", 400e9}},
          .memory = {{"L1", 1e6, {1000e9}}, {"L2", 10e6, {100e9}}, {"memory", 1e9, {10e9}}}};
}

TEST(Roofline, ProductsTakeTheirTimeAtThePeakOfTheirNumbers) {
  EXPECT_DOUBLE_EQ(least_time({.operations = 1e9}, machine(), {}).math, 0.01);
  EXPECT_DOUBLE_EQ(least_time({.math = MathType::int8, .operations = 1e9}, machine(), {}).math, 0.0025);
  EXPECT_EQ(least_time({}, machine(), {}).math, 0);
}

TEST(Roofline, BytesComeFromTheNearestMemoryThatCanHoldThem) {
  const LeastTime near = least_time({.tensor_bytes = 0.5e6}, machine(), {});
  EXPECT_EQ(near.level, "L1");
  EXPECT_DOUBLE_EQ(near.memory, 0.5e6 / 1000e9);
  const LeastTime between = least_time({.tensor_bytes = 5e6}, machine(), {});
  EXPECT_EQ(between.level, "L2");
  EXPECT_DOUBLE_EQ(between.memory, 4e6 / 100e9) << "1 MB of it may be in L1";
  const LeastTime far = least_time({.tensor_bytes = 110e6}, machine(), {});
  EXPECT_EQ(far.level, "memory");
  EXPECT_DOUBLE_EQ(far.memory, 100e6 / 10e9);
}

TEST(Roofline, WeightsOfALargeNetworkHaveLeftTheCaches) {
  const StepWork work{.constant_bytes = 0.5e6};
  EXPECT_EQ(least_time(work, machine(), {.constant_bytes = 0.5e6}).level, "L1") << "nothing drives them out";
  const LeastTime cold = least_time(work, machine(), {.constant_bytes = 100e6});
  EXPECT_EQ(cold.level, "memory");
  EXPECT_DOUBLE_EQ(cold.memory, 0.9 * 0.5e6 / 10e9) << "a tenth of all weights fits into L2";
}

TEST(Roofline, TheLargerShareIsTheBound) {
  const StepWork dense{.operations = 1e9, .tensor_bytes = 1e6};
  RooflinePoint placed = roofline_point(dense, 0.0125, machine(), {});
  EXPECT_EQ(placed.bound, Bound::math);
  EXPECT_DOUBLE_EQ(placed.math_share, 0.8);
  EXPECT_DOUBLE_EQ(placed.share(), 0.8);
  EXPECT_DOUBLE_EQ(placed.intensity, 1000);
  EXPECT_DOUBLE_EQ(placed.operations, 80e9);
  EXPECT_EQ(bound_text(placed), "math");

  const StepWork moved{.operations = 1e6, .tensor_bytes = 110e6};
  placed = roofline_point(moved, 0.0125, machine(), {});
  EXPECT_EQ(placed.bound, Bound::memory);
  EXPECT_DOUBLE_EQ(placed.memory_share, 0.8);
  EXPECT_DOUBLE_EQ(placed.bandwidth, 110e6 / 0.0125);
  EXPECT_EQ(bound_text(placed), "memory");
  EXPECT_EQ(bound_text(roofline_point({.tensor_bytes = 5e6}, 50e-6, machine(), {})), "memory (L2)");
}

TEST(Roofline, LessThanHalfOfBothIsLatency) {
  const StepWork dense{.operations = 1e9, .tensor_bytes = 1e6};
  EXPECT_EQ(roofline_point(dense, 0.0201, machine(), {}).bound, Bound::latency);
  EXPECT_EQ(roofline_point(dense, 0.0200, machine(), {}).bound, Bound::math);
  EXPECT_EQ(bound_text(roofline_point(dense, 1, machine(), {})), "latency");
}

TEST(Roofline, NothingToDoIsNoDivisionByZero) {
  const RooflinePoint placed = roofline_point({}, 0, machine(), {});
  EXPECT_EQ(placed.share(), 0);
  EXPECT_EQ(placed.intensity, 0);
  EXPECT_THROW(least_time({}, Peaks{}, {}), ulp::Error);
}

/// The numbers of a V100: 125 Tflop/s, 900 GB/s of memory, 3.1 TB/s of its second cache.
TEST(Roofline, OpsPerByteOfAV100AreThoseOfItsDescription) {
  EXPECT_NEAR(125e12 / 900e9, 139, 0.5);
  const Peaks v100{.threads = 1,
                   .isa = "gpu",
                   .math = {{MathType::f32, "", "", 125e12}},
                   .memory = {{"L2", 6e6, {3.1e12}}, {"memory", 16e9, {900e9}}}};
  // Just above 139 operations a byte a large product is bound by math, just below by memory.
  const auto bound = [&](double intensity) {
    constexpr double kBytes = 100e9;  // the caches hold next to nothing of it
    const StepWork work{.operations = intensity * kBytes, .tensor_bytes = kBytes};
    const LeastTime least = least_time(work, v100, {});
    return roofline_point(work, std::max(least.math, least.memory), v100, {}).bound;
  };
  EXPECT_EQ(bound(140), Bound::math);
  EXPECT_EQ(bound(138), Bound::memory);
}

}  // namespace
