// Converting one number to and from a format of the table: codes and rounded values.
//
// These are the definitions; they work for every format and are written to be read, not to be fast. The rules
// are those of IEEE 754-2019 section 4.3 (rounding) and, for 8 bits, of the OCP 8-bit floating point and MX
// specifications, with LibTorch 2.13's choices where those leave one (all confirmed by golden data):
//   - e4m3fn saturates: every value past 448, infinities too, becomes 448;
//   - e5m2 overflows to infinity; the fnuz formats overflow to NaN, and they turn -0 into 0;
//   - e8m0 takes the magnitude, sends ties to the larger power, and 0 and everything small to 2^-127.
//   - fp6 and fp4 saturate (they have neither inf nor NaN), a NaN becomes 0 with its sign;
//   - binary is the sign: numbers below 0 become -1, all others (-0 and NaN, too) +1.
// One difference: between 2^-127 and 1.5 * 2^-127 LibTorch's e8m0 cast rounds up to 2^-126; here it goes to
// the nearest.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/base/export.h"
#include "ulp/formats/format.h"

namespace ulp::formats {

/// Which of the two numbers around a value is taken.
enum class Rounding {
  nearest_even,  ///< to the nearest number, ties to the even mantissa
  toward_zero,   ///< truncation; a finite value never becomes larger than max()
  /// Away from zero with the probability of the part that is cut off, so that the expectation is the value:
  /// Cast::random is added below the last kept place, a carry rounds up. What the format holds stays as it
  /// is. Values past max() round to it or overflow; binary is +1 with probability (1 + value) / 2.
  stochastic,
};

/// How to cast; the default is the format's own cast.
struct Cast {
  Rounding rounding = Rounding::nearest_even;
  std::optional<Overflow> overflow = std::nullopt;  ///< replaces the format's rule
  uint32_t random = 0;                              ///< stochastic only: 32 random bits, see random_bits.h
};

/// The code of `value` rounded to the format, in the low bits() bits. NaN becomes the canonical NaN with the
/// sign of `value`; in a format without NaN it becomes 0 (integers, fp6, fp4) or +1 (binary). An `overflow`
/// that the format cannot express is an error.
ULP_API uint64_t encode(const Format& format, double value, Cast cast = {});

/// The value of a code, exactly. Bits above bits() are an error.
ULP_API double decode(const Format& format, uint64_t code);

/// `value` as the format holds it: decode(encode(value)).
ULP_API double round_to_format(const Format& format, double value, Cast cast = {});

}  // namespace ulp::formats
