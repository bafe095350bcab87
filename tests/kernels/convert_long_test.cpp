// All 2^32 fp32 numbers to bf16 and fp16. Minutes of work, so it runs on request only:
//   bin/test_kernels --gtest_also_run_disabled_tests --gtest_filter='*EveryFp32*'
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <bit>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "helpers.h"
#include "ulp/kernels/convert/convert.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kChunk = int64_t{1} << 16;

// References that share nothing with the code under test: the processor's own conversion, and distances in
// double.
#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) uint16_t by_hardware(float x) {
  const __m128i code = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return static_cast<uint16_t>(_mm_extract_epi16(code, 0));
}

/// F16C, for which clang 14 has no word: every processor with AVX2 has it.
bool has_hardware_fp16() {
  return __builtin_cpu_supports("avx2");
}
#else
uint16_t by_hardware(float x) {
  return std::bit_cast<uint16_t>(static_cast<__fp16>(x));
}
bool has_hardware_fp16() {
  return true;
}
#endif

uint16_t by_distance(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto code = static_cast<uint16_t>(bits >> 16);
  const auto value = [](uint32_t c) { return double{std::bit_cast<float>(c << 16)}; };
  if (std::isinf(x)) return code;
  const double low = value(code);
  // The number after the largest would be 2^128.
  const double high = (code & 0x7fff) == 0x7f7f ? std::copysign(0x1p128, x) : value(code + 1U);
  const double to_low = std::fabs(x - low), to_high = std::fabs(high - x);
  const bool up = to_high < to_low || (to_high == to_low && code % 2 == 1);
  return static_cast<uint16_t>(code + (up ? 1 : 0));
}

// Checks the numbers whose upper 16 bits are `high`; returns how many differ.
int64_t wrong_in_chunk(const formats::Format& format, uint32_t high, const std::vector<Isa>& isas) {
  const bool half = format.mantissa_bits == 10;
  std::vector<float> x(kChunk);
  std::vector<uint16_t> expected(kChunk), got(kChunk);
  int64_t wrong = 0;
  for (uint32_t low = 0; low < kChunk; ++low) {
    x[low] = std::bit_cast<float>(high << 16 | low);
    const auto nan = static_cast<uint16_t>(format.nan_code() | (high >> 15 << 15));
    expected[low] = std::isnan(x[low]) ? nan : half ? by_hardware(x[low]) : by_distance(x[low]);
    wrong += formats::encode(format, x[low]) != expected[low];
  }
  for (Isa isa : isas) {
    encode(format, x.data(), got.data(), kChunk, {}, isa, SerialParallel());
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != expected[i];
  }
  return wrong;
}

class LongConvert : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(To, LongConvert, ::testing::Values("bf16", "fp16"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LongConvert, DISABLED_EveryFp32NumberOnEveryInstructionSet) {
  if (!has_hardware_fp16()) GTEST_SKIP() << "needs a processor with F16C";
  const formats::Format& format = formats::find(GetParam());
  // The families differ in three sets of conversions only.
  std::vector<Isa> isas;
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    for (Isa available : available_isas()) {
      if (isa == available) isas.push_back(isa);
    }
  }
  std::atomic<int64_t> wrong{0};
  const int workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  test::ThreadParallel(workers).run(
      65536, [&](int64_t high, int) { wrong += wrong_in_chunk(format, static_cast<uint32_t>(high), isas); });
  EXPECT_EQ(wrong, 0);
}

// A sample of the same, for every day: one block of 65,536 in 1021.
TEST_P(LongConvert, SomeBlocksOfThem) {
  if (!has_hardware_fp16()) GTEST_SKIP() << "needs a processor with F16C";
  for (uint32_t high = 3; high < 65536; high += 1021) {
    EXPECT_EQ(wrong_in_chunk(formats::find(GetParam()), high, available_isas()), 0) << std::hex << high;
  }
}

}  // namespace
}  // namespace ulp::kernels
