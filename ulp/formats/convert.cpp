#include "ulp/formats/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"

namespace ulp::formats {

namespace {

constexpr int kDoubleMantissa = 52;

uint64_t overflow_code(const Format& format, Overflow rule) {
  switch (rule) {
    case Overflow::saturate:
      return format.max_code();
    case Overflow::to_infinity:
      return format.infinity_code();
    default:
      return format.nan_code();
  }
}

uint64_t with_sign(const Format& format, uint64_t magnitude, bool negative) {
  if (!negative || !format.is_signed()) return magnitude;
  // fnuz: the code of -0 is the NaN, so zero stays positive.
  if (format.specials == Specials::nan_for_neg_zero && magnitude == 0) return 0;
  return magnitude | format.sign_mask();
}

// The first 32 bits of what a shift to the right cuts off; what lies below them is lost.
uint64_t cut_off(uint64_t significand, int shift) {
  const uint64_t kept_above = shift <= 32  ? significand << (32 - shift)
                              : shift < 96 ? significand >> (shift - 32)
                                           : 0;
  return kept_above & 0xffffffffU;
}

// Shifts `significand` right and rounds what falls off.
uint64_t shift_and_round(uint64_t significand, int shift, Cast cast) {
  if (shift == 0) return significand;
  if (cast.rounding == Rounding::stochastic) {
    const uint64_t kept = shift < 64 ? significand >> shift : 0;
    return kept + ((cut_off(significand, shift) + cast.random) >> 32);
  }
  // Beyond this shift a 53-bit significand is below a quarter of the last place.
  if (shift > kDoubleMantissa + 2) return 0;
  const uint64_t kept = significand >> shift;
  if (cast.rounding == Rounding::toward_zero) return kept;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

// Magnitude code of a finite value > 0; may exceed max_code().
uint64_t finite_magnitude(const Format& format, double value, Cast cast) {
  int exponent = 0;
  const auto significand =
      static_cast<uint64_t>(std::ldexp(std::frexp(value, &exponent), kDoubleMantissa + 1));
  exponent -= 1;  // value = significand * 2^(exponent - 52), significand in [2^52, 2^53)
  const int quantum_exponent = std::max(exponent, format.min_exponent());
  const int shift = quantum_exponent - exponent + kDoubleMantissa - format.mantissa_bits;
  const uint64_t kept = shift_and_round(significand, shift, cast);
  // The implicit bit of `kept` adds one to the exponent field, and a carry out of the mantissa one more.
  const uint64_t code =
      (static_cast<uint64_t>(quantum_exponent - format.min_exponent()) << format.mantissa_bits) + kept;
  if (format.kind != Kind::scale) return code;
  return code == 0 ? 0 : code - 1;  // field 0 of a bare power of two is a normal number
}

double round_to_integer(double value, Cast cast) {
  if (cast.rounding == Rounding::nearest_even) return std::nearbyint(value);
  const double whole = std::trunc(value);
  if (cast.rounding == Rounding::toward_zero) return whole;
  const auto cut = static_cast<uint64_t>(std::ldexp(std::fabs(value - whole), 32));
  return whole + std::copysign(static_cast<double>((cut + cast.random) >> 32), value);
}

uint64_t encode_integer(const Format& format, double value, Cast cast) {
  if (std::isnan(value)) return 0;
  const double inside = std::clamp(value, format.lowest(), format.max());
  return static_cast<uint64_t>(static_cast<int64_t>(round_to_integer(inside, cast))) &
         (format.sign_mask() | format.magnitude_mask());
}

// The only bit is the sign.
uint64_t encode_binary(double value, Cast cast) {
  if (cast.rounding != Rounding::stochastic || !(std::fabs(value) < 1)) return value < 0 ? 1 : 0;
  const auto cut = static_cast<uint64_t>(std::floor(std::ldexp(value, 31)) + 0x1p31);  // (1 + value) / 2
  return (cut + cast.random) >> 32 ? 0 : 1;
}

}  // namespace

uint64_t encode(const Format& format, double value, Cast cast) {
  const Overflow rule = cast.overflow.value_or(format.overflow);
  if ((rule == Overflow::to_infinity && !format.has_infinity()) ||
      (rule == Overflow::to_nan && !format.has_nan())) {
    fail("formats.encode", "expected an overflow rule that ", format.name, " can express, got '",
         to_string(rule), "'");
  }
  if (format.kind == Kind::integer) return encode_integer(format, value, cast);
  if (format.kind == Kind::binary) return encode_binary(value, cast);
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return with_sign(format, format.has_nan() ? format.nan_code() : 0, negative);
  if (value == 0) return with_sign(format, 0, negative);
  if (std::isinf(value)) return with_sign(format, overflow_code(format, rule), negative);
  uint64_t magnitude = finite_magnitude(format, std::fabs(value), cast);
  if (magnitude > format.max_code()) {
    magnitude = cast.rounding == Rounding::toward_zero ? format.max_code() : overflow_code(format, rule);
  }
  return with_sign(format, magnitude, negative);
}

double decode(const Format& format, uint64_t code) {
  const uint64_t all_bits = format.sign_mask() | format.magnitude_mask();
  if (code & ~all_bits) {
    fail("formats.decode", "expected a code of ", format.bits(), " bits for ", format.name, ", got ", code);
  }
  const bool negative = code & format.sign_mask();
  const uint64_t magnitude = code & format.magnitude_mask();
  if (format.kind == Kind::integer) {
    return static_cast<double>(magnitude) + (negative ? -static_cast<double>(format.sign_mask()) : 0.0);
  }
  if (format.kind == Kind::binary) return negative ? -1.0 : 1.0;
  if (format.specials == Specials::nan_for_neg_zero && code == format.sign_mask()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude > format.max_code()) {
    const bool infinite = format.has_infinity() && magnitude == format.infinity_code();
    const double special =
        infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    return std::copysign(special, negative ? -1.0 : 1.0);
  }
  const auto field = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint64_t fraction = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  const bool normal = field > 0 || format.kind == Kind::scale;
  const uint64_t significand = fraction | (normal ? uint64_t{1} << format.mantissa_bits : 0);
  const double value =
      std::ldexp(static_cast<double>(significand),
                 (normal ? field - format.bias() : format.min_exponent()) - format.mantissa_bits);
  return negative ? -value : value;
}

double round_to_format(const Format& format, double value, Cast cast) {
  return decode(format, encode(format, value, cast));
}

}  // namespace ulp::formats
