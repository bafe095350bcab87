#include "ulp/measure/peaks/peaks.h"

#include <gtest/gtest.h>

#include <fstream>

#include "temporary_folder.h"
#include "ulp/base/error.h"
#include "ulp/measure/peaks/caches.h"

namespace {

using namespace ulp::measure;
using ulp::kernels::MathType;
using ulp::kernels::MemoryPass;

TEST(Peaks, OfThisMachineAreThere) {
  std::vector<std::string> parts;
  const Peaks peaks = measure_peaks(
      {.threads = 1, .quick = true, .progress = [&](const std::string& part) { parts.push_back(part); }});
  EXPECT_EQ(peaks.threads, 1);
  for (const MathType type : {MathType::f32, MathType::bf16, MathType::int8, MathType::binary})
    EXPECT_GT(peaks.rate(type), 1e8) << ulp::kernels::to_string(type);
  EXPECT_GE(peaks.rate(MathType::bf16), peaks.rate(MathType::f32)) << "bf16 can be widened";
  ASSERT_GE(peaks.memory.size(), 2u);
  EXPECT_EQ(peaks.memory.front().name, "L1");
  EXPECT_EQ(peaks.memory.back().name, "memory");
  for (size_t i = 0; i < peaks.memory.size(); ++i) {
    EXPECT_GT(peaks.memory[i].of(MemoryPass::triad), 1e8) << peaks.memory[i].name;
    if (i > 0) {
      EXPECT_LE(peaks.memory[i].best(), peaks.memory[i - 1].best()) << peaks.memory[i].name;
    }
  }
  EXPECT_EQ(parts.size(), peaks.math.size() + peaks.memory.size());
  EXPECT_GT(peaks.seconds, 0);
}

TEST(Peaks, ANarrowFamilyHasNoWideInstructions) {
  const Peaks peaks = measure_peaks({.threads = 1, .isa = "portable", .quick = true});
  EXPECT_EQ(peaks.isa, "portable");
  for (const MathPeak& peak : peaks.math) EXPECT_EQ(peak.isa, "portable");
  EXPECT_THROW(measure_peaks({.isa = "mmx"}), ulp::Error);
}

Peaks made_up(double f32, double bf16) {
  return {.threads = 2,
          .isa = "avx512_vnni",
          .math = {{MathType::f32, "avx512", "", f32}, {MathType::bf16, "avx512_bf16", "", bf16}},
          .memory = {{"L1", 1e5, {5, 4, 3, 2, 1}}, {"memory", 1e9, {1, 1, 1, 1, 1}}}};
}

TEST(Peaks, TheFasterWayCounts) {
  EXPECT_EQ(made_up(100, 200).fastest(MathType::bf16).isa, "avx512_bf16");
  EXPECT_EQ(made_up(100, 50).fastest(MathType::bf16).isa, "avx512") << "widened to f32";
  EXPECT_EQ(made_up(100, 200).fastest(MathType::f32).isa, "avx512");
  EXPECT_THROW(made_up(1, 1).fastest(MathType::int8), ulp::Error);
}

TEST(Peaks, AreTheMostThatWasSeen) {
  Peaks peaks = made_up(100, 200);
  Peaks other = made_up(110, 190);
  other.memory[0].rate = {1, 9, 1, 1, 1};
  peaks.raise(other);
  EXPECT_EQ(peaks.rate(MathType::f32), 110);
  EXPECT_EQ(peaks.rate(MathType::bf16), 200);
  EXPECT_EQ(peaks.memory[0].rate[0], 5);
  EXPECT_EQ(peaks.memory[0].rate[1], 9);
  other.threads = 1;
  EXPECT_THROW(peaks.raise(other), ulp::Error);
}

TEST(Peaks, OfADeviceFollowFromUnitsAndClock) {
  EXPECT_NEAR(device_peak(108, 1024, 1.41e9), 312e12, 0.5e12);  // A100, fp16 on tensor cores
  EXPECT_DOUBLE_EQ(device_peak(1, 32, 1e9), 64e9);
}

class Caches : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& type, const std::string& level,
           const std::string& size, const std::string& sharers) {
    std::filesystem::create_directory(folder_ / name);
    const auto write = [&](const char* file, const std::string& text) {
      std::ofstream(folder_ / (name + "/" + file)) << text << '\n';
    };
    write("type", type), write("level", level), write("size", size), write("shared_cpu_list", sharers);
  }
  ulp::test::TemporaryFolder folder_;
};

TEST_F(Caches, AreReadFromTheSystem) {
  add("index3", "Unified", "3", "32M", "0-3,8-11");
  add("index0", "Data", "1", "48K", "0,64");
  add("index1", "Instruction", "1", "32K", "0,64");
  add("index2", "Unified", "2", "2048K", "0,64");
  const std::vector<Cache> caches = data_caches(folder_.path());
  ASSERT_EQ(caches.size(), 3u);
  EXPECT_EQ(caches[0].bytes, 48 * 1024);
  EXPECT_EQ(caches[0].sharers, 2);
  EXPECT_EQ(caches[1].bytes, 2048 * 1024);
  EXPECT_EQ(caches[2].level, 3);
  EXPECT_EQ(caches[2].sharers, 8);
  EXPECT_EQ(bytes_of(caches[2], 8), 32 * 1024 * 1024);
  EXPECT_EQ(bytes_of(caches[2], 9), 64 * 1024 * 1024);
  EXPECT_EQ(bytes_of(caches[0], 3), 2 * 48 * 1024);
}

TEST_F(Caches, AreGuessedWhereTheSystemDoesNotSay) {
  for (const auto& folder : {folder_.path(), folder_ / "nowhere"}) {
    const std::vector<Cache> caches = data_caches(folder);
    ASSERT_EQ(caches.size(), 3u);
    EXPECT_LT(caches[0].bytes, caches[1].bytes);
    EXPECT_EQ(bytes_of(caches[2], 96), caches[2].bytes);
  }
}

}  // namespace
