// Converting one fp32 number to and from a format in 32-bit integer arithmetic without branches, so that
// loops over it vectorize; the results are those of formats::encode and formats::decode, bit for bit. Plain
// data and functions with internal linkage, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {

enum class LaneKind : uint8_t {
  wide,      ///< floating with the exponents of fp32: bf16, tf32
  floating,  ///< floating with fewer exponents
  scale,     ///< e8m0
  integer,
  binary
};
enum class LaneRounding : uint8_t { nearest_even, toward_zero, stochastic };

/// A format as the loops need it; made by lane_format() in convert.cpp.
struct LaneFormat {
  LaneKind kind = LaneKind::floating;
  uint32_t mantissa_bits = 0;
  uint32_t min_field = 0;  ///< exponent field in fp32 of the smallest normal number
  uint32_t sign_shift = 0;
  uint32_t magnitude_mask = 0;
  uint32_t max_code = 0;
  uint32_t overflow_code = 0;  ///< what takes the place of anything past max_code
  uint32_t infinity_code = ~0U;
  uint32_t nan_code = 0;          ///< 0 without NaN
  bool nan_at_neg_zero = false;   ///< fnuz
  float smallest = 0;             ///< of `floating`: the smallest subnormal number
  float lowest = 0, highest = 0;  ///< of integers
};

static inline uint32_t lane_min(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
static inline uint32_t lane_max(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

/// `value` shifted right by `shift` >= 1 and rounded; value < 2^24.
template <LaneRounding R>
static inline uint32_t shift_and_round(uint32_t value, uint32_t shift, uint32_t random) {
  const uint32_t near = lane_min(shift, 31);
  const uint32_t kept = value >> near;
  if constexpr (R == LaneRounding::toward_zero) return kept;
  if constexpr (R == LaneRounding::nearest_even) {
    return (value + ((1U << (near - 1)) - 1) + (kept & 1)) >> near;
  }
  // The first 32 bits of what is cut off; one of the two shifts is by 0.
  const uint32_t cut = value << (32 - lane_min(shift, 32)) >> lane_min(lane_max(shift, 32) - 32, 31);
  return kept + (cut + random < random ? 1 : 0);
}

template <LaneRounding R>
static inline uint32_t wide_magnitude(uint32_t magnitude, uint32_t random, const LaneFormat& f) {
  const uint32_t shift = 23 - f.mantissa_bits;
  uint32_t added = 0;
  if constexpr (R == LaneRounding::nearest_even) added = (1U << (shift - 1)) - 1 + (magnitude >> shift & 1);
  if constexpr (R == LaneRounding::stochastic) added = random >> (32 - shift);
  return (magnitude + added) >> shift;
}

template <LaneRounding R>
static inline uint32_t floating_magnitude(uint32_t magnitude, uint32_t random, const LaneFormat& f) {
  const uint32_t field = magnitude >> 23;
  const uint32_t significand = (magnitude & 0x7fffffU) | (field != 0 ? 0x800000U : 0U);
  const uint32_t exponent = lane_max(field, 1);
  const uint32_t quantum = lane_max(exponent, f.min_field);
  const uint32_t shift = lane_min(23 - f.mantissa_bits + quantum - exponent, 63);
  return ((quantum - f.min_field) << f.mantissa_bits) + shift_and_round<R>(significand, shift, random);
}

/// Numbers below 2^-126 have exponent field 0 in both formats; there the leading bit moves up by one.
template <LaneRounding R>
static inline uint32_t scale_magnitude(uint32_t magnitude, uint32_t random) {
  const uint32_t field = magnitude >> 23;
  const uint32_t significand = field != 0 ? (magnitude & 0x7fffffU) | 0x800000U : magnitude << 1;
  return lane_max(field + shift_and_round<R>(significand, 23, random), 1) - 1;
}

template <LaneRounding R>
static inline uint32_t encode_integer(uint32_t bits, uint32_t random, const LaneFormat& f) {
  float value = bits_to_float(bits);
  value = value != value ? 0.0F : value;
  value = value < f.lowest ? f.lowest : value;
  value = value > f.highest ? f.highest : value;
  const uint32_t all = f.magnitude_mask | 1U << f.sign_shift;
  if constexpr (R == LaneRounding::nearest_even) {
    return static_cast<uint32_t>(static_cast<int32_t>(round_even(value))) & all;
  }
  const int32_t whole = static_cast<int32_t>(value);
  if constexpr (R == LaneRounding::toward_zero) return static_cast<uint32_t>(whole) & all;
  // The fraction has at most 24 bits: as 32 bits it is a float, taken apart so that it fits a signed number.
  const float fraction = __builtin_fabsf(value - static_cast<float>(whole)) * 65536.0F;
  const int32_t high = static_cast<int32_t>(fraction);
  const int32_t low = static_cast<int32_t>((fraction - static_cast<float>(high)) * 65536.0F);
  const uint32_t cut = static_cast<uint32_t>(high) << 16 | static_cast<uint32_t>(low);
  const int32_t up = cut + random < random ? 1 : 0;
  return static_cast<uint32_t>(whole + (value < 0 ? -up : up)) & all;
}

template <LaneRounding R>
static inline uint32_t encode_binary(uint32_t bits, uint32_t random) {
  const float value = bits_to_float(bits);
  const uint32_t negative = value < 0 ? 1 : 0;
  if constexpr (R != LaneRounding::stochastic) return negative;
  const bool inside = value > -1.0F && value < 1.0F;
  const float scaled = (inside ? value : 0.0F) * 2147483648.0F;
  const int32_t truncated = static_cast<int32_t>(scaled);
  const int32_t below = truncated - (static_cast<float>(truncated) > scaled ? 1 : 0);
  const uint32_t cut = static_cast<uint32_t>(below) + 0x80000000U;  // (1 + value) / 2
  const uint32_t drawn = cut + random < random ? 0 : 1;
  return inside ? drawn : negative;
}

/// The code of the fp32 number with these bits.
template <LaneKind K, LaneRounding R>
static inline uint32_t encode_lane(uint32_t bits, uint32_t random, const LaneFormat& f) {
  if constexpr (K == LaneKind::integer) return encode_integer<R>(bits, random, f);
  if constexpr (K == LaneKind::binary) return encode_binary<R>(bits, random);
  const uint32_t magnitude = bits & 0x7fffffffU;
  uint32_t code = 0;
  if constexpr (K == LaneKind::wide) code = wide_magnitude<R>(magnitude, random, f);
  if constexpr (K == LaneKind::floating) code = floating_magnitude<R>(magnitude, random, f);
  if constexpr (K == LaneKind::scale) code = scale_magnitude<R>(magnitude, random);
  const uint32_t past = R == LaneRounding::toward_zero ? f.max_code : f.overflow_code;
  code = code > f.max_code ? past : code;
  code = magnitude == 0x7f800000U ? f.overflow_code : code;
  code = magnitude > 0x7f800000U ? f.nan_code : code;
  if constexpr (K == LaneKind::scale) return code;
  const uint32_t sign = bits >> 31 << f.sign_shift;
  return code | (f.nan_at_neg_zero && code == 0 ? 0U : sign);
}

/// The bits of the fp32 number that a code stands for.
template <LaneKind K>
static inline uint32_t decode_lane(uint32_t code, const LaneFormat& f) {
  const uint32_t magnitude = code & f.magnitude_mask;
  const uint32_t negative = K == LaneKind::scale ? 0U : code >> f.sign_shift & 1U;
  if constexpr (K == LaneKind::binary) return 0x3f800000U | negative << 31;
  if constexpr (K == LaneKind::integer) {
    const int32_t value = static_cast<int32_t>(magnitude) - static_cast<int32_t>(negative << f.sign_shift);
    return float_to_bits(static_cast<float>(value));
  }
  uint32_t bits = magnitude << (23 - f.mantissa_bits);
  if constexpr (K == LaneKind::floating) {
    const uint32_t subnormal =
        float_to_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * f.smallest);
    bits = magnitude >> f.mantissa_bits != 0 ? bits + ((f.min_field - 1) << 23) : subnormal;
  }
  if constexpr (K == LaneKind::scale) bits = magnitude != 0 ? bits : 0x00400000U;
  bits = magnitude > f.max_code ? 0x7fc00000U : bits;
  bits = magnitude == f.infinity_code ? 0x7f800000U : bits;
  bits |= negative << 31;
  return f.nan_at_neg_zero && magnitude == 0 && negative != 0 ? 0x7fc00000U : bits;
}

/// fp32 to bf16, stochastically: what formats::encode gives for 32 random bits of formats/random_bits.h.
static inline uint16_t stochastic_bf16(float value, uint32_t random) {
  const uint32_t bits = float_to_bits(value);
  const uint32_t rounded = ((bits & 0x7fffffffU) + (random >> 16)) >> 16;
  // Past the largest number comes infinity, past infinity NaN: both have the next codes.
  const uint32_t magnitude = (bits & 0x7fffffffU) < 0x7f800000U    ? rounded
                             : (bits & 0x7fffffffU) == 0x7f800000U ? 0x7f80U
                                                                   : 0x7fc0U;
  return static_cast<uint16_t>(magnitude | bits >> 31 << 15);
}

/// fp32 to fp16, in the same way.
static inline uint16_t stochastic_fp16(float value, uint32_t random) {
  constexpr LaneFormat kHalf{.mantissa_bits = 10,
                             .min_field = 113,
                             .sign_shift = 15,
                             .magnitude_mask = 0x7fff,
                             .max_code = 0x7bff,
                             .overflow_code = 0x7c00,
                             .infinity_code = 0x7c00,
                             .nan_code = 0x7e00};
  return static_cast<uint16_t>(
      encode_lane<LaneKind::floating, LaneRounding::stochastic>(float_to_bits(value), random, kHalf));
}

}  // namespace ulp::kernels
