#include "ulp/measure/gpus/nvidia.h"

#include <gtest/gtest.h>

namespace {

using namespace ulp::measure;

TEST(NvidiaGpus, AreDescribedByTheDriversLibrary) {
  const std::vector<Gpu> gpus = nvidia_gpus(ULP_FAKE_NVML);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(gpus[0].multiprocessors, 108);
  EXPECT_EQ(gpus[0].capability, 80);
  EXPECT_DOUBLE_EQ(gpus[0].memory_bytes, 40536.0 * 1024 * 1024);
  EXPECT_TRUE(gpus[0].mig);
  EXPECT_EQ(gpus[1].name, "Tesla V100-SXM2-16GB");
  EXPECT_EQ(gpus[1].multiprocessors, 80);
  EXPECT_FALSE(gpus[1].mig);
  EXPECT_TRUE(gpus[1].slices.empty());
}

TEST(NvidiaGpus, SlicesAreFoundBehindEmptyPlaces) {
  const Gpu gpu = nvidia_gpus(ULP_FAKE_NVML).at(0);
  ASSERT_EQ(gpu.slices.size(), 3u);
  EXPECT_EQ(gpu.slices[1].index, 3);
  EXPECT_EQ(gpu.slices[2].index, 6);
  for (const MigSlice& slice : gpu.slices) {
    EXPECT_EQ(slice.multiprocessors, 14);
    EXPECT_EQ(slice.gpu_slices, 1);
    EXPECT_EQ(slice.compute_slices, 1);
    EXPECT_DOUBLE_EQ(slice.memory_bytes, 4864.0 * 1024 * 1024);
    EXPECT_DOUBLE_EQ(slice.used_bytes, 512.0 * 1024 * 1024);
  }
}

TEST(NvidiaGpus, PeaksAreThoseOfTheDataSheets) {
  const std::vector<Gpu> gpus = nvidia_gpus(ULP_FAKE_NVML);
  EXPECT_NEAR(peak_of(gpus[0])->operations, 312e12, 0.5e12);
  EXPECT_NEAR(peak_of(gpus[0])->bandwidth, 1555e9, 1e9);
  EXPECT_NEAR(peak_of(gpus[1])->operations, 125e12, 0.5e12);
  EXPECT_NEAR(peak_of(gpus[1])->bandwidth, 898e9, 1e9);
}

TEST(NvidiaGpus, ASliceHasItsShareOfThePeak) {
  const Gpu gpu = nvidia_gpus(ULP_FAKE_NVML).at(0);
  const auto whole = peak_of(gpu), slice = peak_of(gpu, gpu.slices[0]);
  ASSERT_TRUE(whole && slice);
  EXPECT_DOUBLE_EQ(slice->operations, whole->operations * 14 / 108);
  EXPECT_DOUBLE_EQ(slice->bandwidth, whole->bandwidth * 4864 / 40536);
}

TEST(NvidiaGpus, WhatIsNotKnownHasNoPeak) {
  Gpu gpu = nvidia_gpus(ULP_FAKE_NVML).at(0);
  gpu.capability = 75;
  EXPECT_FALSE(peak_of(gpu));
  EXPECT_FALSE(peak_of(gpu, gpu.slices[0]));
}

TEST(NvidiaGpus, WithoutADriverThereAreNone) {
  EXPECT_TRUE(nvidia_gpus("/nowhere/libnvidia-ml.so.1").empty());
}

}  // namespace
