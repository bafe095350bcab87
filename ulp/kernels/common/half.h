// fp16 to fp32 and back without branches, so that loops over them vectorize; internal linkage, see
// float_bits.h.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {

/// Exact. A NaN becomes quiet and keeps its other bits.
static inline float half_to_float(uint16_t value) {
  const uint32_t sign = (uint32_t{value} & 0x8000U) << 16;
  const uint32_t magnitude = uint32_t{value} & 0x7fffU;
  // Normal numbers change the bias of their exponent; infinities and NaN get the whole distance.
  const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U);
  // 2^-14 more than the subnormal, minus that again: the subtraction does the shifting.
  const float subnormal = bits_to_float((magnitude << 13) + 0x38800000U) - bits_to_float(0x38800000U);
  const uint32_t quiet = magnitude > 0x7c00U ? 0x400000U : 0U;
  return bits_to_float(sign | quiet | (magnitude < 0x400U ? float_to_bits(subnormal) : normal));
}

/// Round half to even, subnormals too; what is too large becomes infinite, a NaN stays a quiet NaN.
static inline uint16_t float_to_half(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t odd = magnitude >> 13 & 1U;
  const uint32_t normal = (magnitude - 0x38000000U + 0xfffU + odd) >> 13;
  // The unit in the last place of 0.5 is 2^-24, fp16's smallest number: the addition rounds to it.
  const uint32_t subnormal = float_to_bits(bits_to_float(magnitude) + 0.5F) - 0x3f000000U;
  uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;
  result = magnitude > 0x7f800000U ? 0x7e00U | (magnitude >> 13 & 0x3ffU) : result;
  return static_cast<uint16_t>(sign | result);
}

}  // namespace ulp::kernels
