// The raw counts that each instruction set's file fills in. Plain data and functions with internal linkage,
// see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/half.h"

namespace ulp::kernels {

/// Counts by index: 1 zero; 2b and 2b + 1 the lower and upper part of the binade above 2^(b - 128), b = 1
/// being all of (0, 2^-126] and infinity ending up in 511; 512 and 513 NaN.
struct ExponentCounts {
  static constexpr int kBins = 514;
  static constexpr int kZero = 1, kNan = 512;
  uint32_t bins[kBins];
  uint32_t largest;    ///< bits of the largest finite magnitude
  uint32_t nonfinite;  ///< infinities and NaN
  int64_t first;       ///< index of the first of them, or -1
};

/// Fills `counts` from n < 2^32 elements; `cut` is the smallest 23-bit mantissa of a binade's upper part.
struct ExponentCounters {
  void (*f32)(const uint32_t* x, int64_t n, uint32_t cut, ExponentCounts& counts);
  void (*bf16)(const uint16_t* x, int64_t n, uint32_t cut, ExponentCounts& counts);
  void (*f16)(const uint16_t* x, int64_t n, uint32_t cut, ExponentCounts& counts);
};

extern const ExponentCounters kExponentCountersPortable, kExponentCountersAvx2, kExponentCountersAvx512;

/// The bits of |value| in fp32.
struct LoadF32 {
  using Code = uint32_t;
  static inline uint32_t magnitude(uint32_t code) { return code & 0x7fffffffU; }
};
struct LoadBf16 {
  using Code = uint16_t;
  static inline uint32_t magnitude(uint16_t code) { return (uint32_t{code} & 0x7fffU) << 16; }
};
struct LoadF16 {
  using Code = uint16_t;
  static inline uint32_t magnitude(uint16_t code) {
    return float_to_bits(half_to_float(static_cast<uint16_t>(code & 0x7fffU)));
  }
};

}  // namespace ulp::kernels
