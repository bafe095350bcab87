// The bits of floats, bf16, and rounding, for loops of every instruction set. Internal linkage: a file
// compiled for a wide instruction set can include this, and any header of plain data, without leaking code to
// other files.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

static inline float bits_to_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
static inline uint32_t float_to_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

/// f32 holds all integers of smaller magnitude, and may have rounded a result of this one or more.
static inline bool may_be_inexact(float integer) {
  return !(__builtin_fabsf(integer) < 16777216.0F);
}

static inline float bf16_to_float(uint16_t value) {
  return bits_to_float(uint32_t{value} << 16);
}

/// Round half to even; a NaN stays a (quiet) NaN.
static inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
  const uint32_t quiet = bits | 0x400000U;
  return static_cast<uint16_t>((value != value ? quiet : rounded) >> 16);
}

/// Round half to even for |value| < 2^22, without a library call, so that loops over it vectorize.
static inline float round_even(float value) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: the sum has no fraction bits left
  return (value + kMagic) - kMagic;
}

/// Element i of an array of f32, bf16 or u8; the callers check that it is one of them.
static inline float load_as_float(DataType type, const void* data, int64_t i) {
  if (type == DataType::u8) return static_cast<float>(static_cast<const uint8_t*>(data)[i]);
  if (type == DataType::bf16) return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

}  // namespace ulp::kernels
