// The numbers behind the codes of 8-bit and 4-bit moments. Plain data with internal linkage, see float_bits.h
// for why.
//
// A block of moments has its largest magnitude in fp32, absmax; an element is absmax times the map's value
// nearest to its share of it. Codes number the values from the least on.
//
// Moments of both signs have a "dynamic" map. Between 10^-kDecades and 1, decade i (from 0) holds 2^i values,
// the midpoints of 2^i equal parts of [0.1, 1] times 10^(i + 1 - kDecades), on both sides; 0 and 1 (not -1)
// are values, too. Source: Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", in the form
// of bitsandbytes; with three decades, torchao's 4-bit map.
//
// 8-bit squares have SquareMap8.
#pragma once

#include <cstdint>

namespace ulp::kernels {
namespace {

/// What both directions of a map need, as tables of eight, twice: a lookup that takes the lowest three or
/// four bits of its index finds the same. `u` numbers magnitudes: 0 is that of 0, [2^i, 2^(i+1)) are those of
/// decade i, kOne is that of 1.
template <int kDecades>
struct DecadeMap {
  static constexpr int kOne = 1 << kDecades;
  static constexpr int kZeroCode = kOne - 1;

  static constexpr int count(int decade) { return 1 << decade; }
  static constexpr double power(int decade) {
    double value = 1;
    for (int i = decade + 1; i < kDecades; ++i) value *= 10;
    return value;  // 1 / power() is the decade's upper end
  }
  /// In [0, 1): how far u + 0.5 is from its power of two to the next.
  static constexpr float fraction(int u, int decade) {
    return (static_cast<float>(u) + 0.5F) / static_cast<float>(count(decade)) - 1.0F;
  }

  float step[16],
      base[16];  ///< by the exponent of u + 0.5: its magnitude is fraction * step + base, but for 0
  float slope[16], offset[16];  ///< by decade + 1: u is magnitude * slope + offset, truncated, and not above
  float last[16], next[16];     ///< `last`; from the magnitude `next` on it is in the decade above
  float one;                    ///< from this magnitude on u is kOne

  constexpr float magnitude(int u) const {
    if (u == 0) return 0;
    if (u == kOne) return 1;
    int decade = 0;
    while (u >= 2 * count(decade)) ++decade;
    const int at = (127 + decade) % 8;
    return fraction(u, decade) * step[at] + base[at];
  }
  constexpr float between(int u) const {
    return static_cast<float>((static_cast<double>(magnitude(u)) + static_cast<double>(magnitude(u + 1))) /
                              2);
  }

  constexpr DecadeMap() : step(), base(), slope(), offset(), last(), next(), one() {
    for (int at = 0; at < 16; ++at) next[at] = 2;  // no magnitude is so large
    for (int copy = 0; copy < 16; copy += 8) {
      offset[copy] = last[copy] = 0;
      for (int i = 0; i < kDecades; ++i) {
        const int at = copy + (127 + i) % 8;
        step[at] = static_cast<float>(0.9 / power(i));
        base[at] = static_cast<float>(0.1 / power(i));
        slope[copy + i + 1] = static_cast<float>(power(i) * count(i) / 0.9);
        offset[copy + i + 1] = static_cast<float>(count(i) * 8.0 / 9.0);
        last[copy + i + 1] = static_cast<float>(2 * count(i) - 1);
      }
      base[copy + (127 + kDecades) % 8] = 1;
    }
    for (int copy = 0; copy < 16; copy += 8) {
      for (int i = 0; i < kDecades; ++i) next[copy + i] = between(count(i) - 1);
    }
    one = between(kOne - 1);
  }

  /// About the table's place of a magnitude, from the exponent of its bits: the place itself or the one
  /// below.
  static constexpr int kEstimate = kDecades == 7 ? -515 : -582;
  static constexpr int place_from_exponent(int exponent) {
    const int estimate = (5 * exponent + kEstimate) >> 4;
    return estimate > 0 ? estimate : 0;
  }
  /// Whether it is, for every magnitude up to 1.
  constexpr bool estimates_hold() const {
    for (int exponent = 0; exponent <= 127; ++exponent) {
      double low = 1, high = 1;  // the least magnitude of the exponent, and what all of them are below
      for (int e = exponent; e < 127; ++e) low /= 2;
      if (exponent < 127) high = 2 * low;
      int first = 0, end = 0;
      for (int i = 0; i < kDecades; ++i) {
        first += low >= static_cast<double>(next[i]) ? 1 : 0;
        end += high > static_cast<double>(next[i]) ? 1 : 0;
      }
      const int estimate = place_from_exponent(exponent);
      if (estimate > first || end > estimate + 1) return false;
    }
    return true;
  }
};

using SignedMap8 = DecadeMap<7>;
using SignedMap4 = DecadeMap<3>;

/// What a map is at compile time, on a line of the cache.
template <typename Map>
struct MapTables {
  alignas(64) static constexpr Map kMap{};
  static_assert(kMap.estimates_hold());
};

/// How a SquareMap8 makes codes of bits in some of its octaves: the bits of the mantissa that are left out,
/// and what makes a code of the others.
struct SquareLine {
  int32_t drop, less;
};
/// The line of so many bits of mantissa that gives these bits this code.
constexpr SquareLine square_line(int32_t kept, int32_t bits, int32_t code) {
  return {23 - kept, (bits >> (23 - kept)) - code};
}

/// Squares are in a denominator, as roots: their errors count relative to themselves, and a zero where the
/// other moment is none makes a step of any size. The 255 values above 0 are fp32 numbers from 1 downwards,
/// with four bits of mantissa in the first eight octaves and three in all others, to 2^-24 * 1.25: a share of
/// that or more is at most a sixteenth of itself from its value, its root a 32nd. A smaller one becomes the
/// least value, never 0.
///
/// A code is the larger of what the two precisions make of a share's bits, and its bits are the lesser of
/// what they make of the code: with more bits codes lie closer, so that the line of a precision is above the
/// other in its own octaves and below it elsewhere.
struct SquareMap8 {
  static constexpr int32_t kOneBits = 0x3f800000, kFineOctaves = 8;
  static constexpr SquareLine kFine = square_line(4, kOneBits, 255);
  static constexpr SquareLine kCoarse =
      square_line(3, kOneBits - kFineOctaves * (1 << 23), 255 - kFineOctaves * 16);
};

/// The values (code + 1) / 16 of 4-bit second moments, without 0: a root in a denominator. Source: Li et al.
/// 2023, "Memory efficient optimizers with 4-bit states", and torchao.
constexpr float kLinearStep = 0.0625F;

}  // namespace
}  // namespace ulp::kernels
