// What a convolution does to an accumulator before it stores it. Plain data and functions with internal
// linkage, so that a file compiled for a wide instruction set can include it without leaking code to other
// files.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

/// The steps, all in float: v = float(acc) * multiplier[c] (or acc + bias[c]); v += (residual - zero) *
/// scale; clamp to [lo, hi]; u8: round half to even and add the output's zero point.
struct Finish {
  const void* bias = nullptr;         ///< int32 or float, one per channel; the accumulators start from it
  const float* multiplier = nullptr;  ///< integer layers only
  float lo = 0, hi = 0;               ///< in units of the output's scale, zero point not added
  int32_t output_zero = 0;
  float residual_scale = 1, residual_zero = 0;
  Element output = Element::f32;
  Element residual_type = Element::f32;
  Activation curve = Activation::none;  ///< applied last, to f32 results
  // Dynamic layers, whose rows bring a scale and a zero point of their own:
  // v = float(acc - zero[row] * weight_sum[c]) * (scale[row] * multiplier[c]) + bias_f32[c].
  const int32_t* weight_sum = nullptr;
  const float* bias_f32 = nullptr;
};

static inline float bits_to_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
static inline uint32_t float_to_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
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

static inline float load_as_float(Element type, const void* data, int64_t i) {
  switch (type) {
    case Element::f32:
      return static_cast<const float*>(data)[i];
    case Element::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
    case Element::u8:
      return static_cast<float>(static_cast<const uint8_t*>(data)[i]);
    default:
      return 0.0F;
  }
}

/// Applies everything after the multiplier to one value and stores it at y[i]; a NaN passes the clamp of a
/// float.
static inline void finish_store(const Finish& f, float v, const void* residual, void* y, int64_t i) {
  if (residual != nullptr) {
    v = v + (load_as_float(f.residual_type, residual, i) - f.residual_zero) * f.residual_scale;
  }
  if (f.output == Element::u8) {
    v = v > f.lo ? v : f.lo;
    v = v < f.hi ? v : f.hi;
    static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(static_cast<int32_t>(round_even(v)) + f.output_zero);
    return;
  }
  v = v < f.lo ? f.lo : v;
  v = v > f.hi ? f.hi : v;
  if (f.output == Element::f32) {
    static_cast<float*>(y)[i] = v;
  } else {
    static_cast<uint16_t*>(y)[i] = float_to_bf16(v);
  }
}

}  // namespace ulp::kernels
