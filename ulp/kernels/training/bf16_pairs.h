// Words of packed matrices. Included by files of an instruction set; everything here has internal linkage.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {
namespace {

/// The bits of a number of bf16 in the upper half: rounded to nearest even, subnormal ones zero, NaN quiet.
inline uint32_t rounded_to_bf16(float value) {
  const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffffU;
  const uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U;
  const uint32_t normal = (rounded & 0x7f800000U) == 0 ? rounded & 0x80000000U : rounded;
  return magnitude > 0x7f800000U ? (bits | 0x400000U) & 0xffff0000U : normal;
}

/// A number of f32.
struct FloatWords {
  typedef uint32_t Word __attribute__((may_alias));
  static constexpr int64_t kNumbers = 1;
  static constexpr bool kRounds = false;
  static uint32_t bits(float value) { return float_to_bits(value); }
  static uint32_t pair(uint32_t first, uint32_t /*second*/) { return first; }
};

/// A number that is rounded to bf16, in f32.
struct Bf16Words : FloatWords {
  static constexpr bool kRounds = true;
  static uint32_t bits(float value) { return rounded_to_bf16(value); }
};

/// Two numbers of bf16, the first one in the upper half.
struct Bf16Pairs : Bf16Words {
  static constexpr int64_t kNumbers = 2;
  static uint32_t pair(uint32_t first, uint32_t second) { return first | second >> 16; }
};

}  // namespace
}  // namespace ulp::kernels
