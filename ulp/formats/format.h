// The table of number formats: what a format is, which ones there are, and everything that follows from a few
// fields.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::formats {

/// The kind of numbers that the codes of a format stand for.
enum class Kind {
  floating,  ///< sign, exponent, mantissa; subnormals below the smallest normal number
  scale,     ///< a bare power of two without sign and without zero (the shared scale of an MX block)
  integer,   ///< two's complement
  binary,    ///< one bit, the sign: 0 is +1, 1 is -1
};

/// Which codes are not finite numbers.
enum class Specials {
  ieee,              ///< exponent all ones: inf (mantissa 0) and NaN
  nan_only,          ///< "fn": no inf; NaN is all ones below the sign
  nan_for_neg_zero,  ///< "fnuz": no inf and no -0; the code of -0 is the only NaN
  none,              ///< every code is a finite number
};

/// The result of casting a value that rounds past the largest finite number, and of casting infinity.
enum class Overflow { to_infinity, saturate, to_nan };

/// One number format. The fields are the primary ones; whatever follows from them is computed.
struct Format {
  std::string_view name;
  Kind kind = Kind::floating;
  int exponent_bits = 0;
  int mantissa_bits = 0;  ///< stored bits, without the implicit one; of an integer all bits but the sign
  Specials specials = Specials::none;
  Overflow overflow = Overflow::to_infinity;  ///< the rule of LibTorch's casts where LibTorch has the format
  int storage_bits = 0;  ///< when stored wider than bits(), else 0 (tf32 travels in 32 bits)

  constexpr bool is_signed() const { return kind != Kind::scale; }
  /// Significant bits of a code, sign included.
  constexpr int bits() const { return (is_signed() ? 1 : 0) + exponent_bits + mantissa_bits; }
  constexpr int stored_bits() const { return storage_bits ? storage_bits : bits(); }
  constexpr uint64_t sign_mask() const { return is_signed() ? uint64_t{1} << (bits() - 1) : 0; }
  /// All bits of a code but the sign.
  constexpr uint64_t magnitude_mask() const { return (uint64_t{1} << (exponent_bits + mantissa_bits)) - 1; }
  /// 2^(e-1) - 1, one more for the fnuz formats, 0 without exponent.
  constexpr int bias() const {
    if (exponent_bits == 0) return 0;
    return (1 << (exponent_bits - 1)) - (specials == Specials::nan_for_neg_zero ? 0 : 1);
  }
  /// Exponent of the smallest normal number.
  constexpr int min_exponent() const {
    if (exponent_bits == 0) return 0;
    return (kind == Kind::scale ? 0 : 1) - bias();
  }
  constexpr bool has_infinity() const { return specials == Specials::ieee; }
  constexpr bool has_nan() const { return specials != Specials::none; }
  /// Code of the largest finite number.
  ULP_API uint64_t max_code() const;
  /// Code of +infinity; an error when the format has none.
  ULP_API uint64_t infinity_code() const;
  /// Code of the canonical (quiet, positive) NaN; an error when the format has none.
  ULP_API uint64_t nan_code() const;

  /// Largest finite number.
  ULP_API double max() const;
  /// Most negative finite number (0 for formats without sign).
  ULP_API double lowest() const;
  /// Smallest positive normal number (1 for integers and binary).
  ULP_API double smallest_normal() const;
  /// Smallest positive subnormal number; 0 when the format has no subnormals.
  ULP_API double smallest_subnormal() const;
  /// Distance from 1 to the next number: the larger one, or -1 of binary.
  ULP_API double epsilon() const;
  /// Decimal digits that survive a round trip through the format: floor(mantissa_bits * log10(2)), as
  /// digits10 of std::numeric_limits.
  ULP_API int decimal_digits() const;
};

/// Every format, widest first.
ULP_API std::span<const Format> all();

/// The format of that name; a prefix like "fp8_" may be left out. An unknown name is an error that lists the
/// known ones.
ULP_API const Format& find(std::string_view name);

/// The word in the tables.
ULP_API const char* to_string(Kind kind);
/// The word in the tables.
ULP_API const char* to_string(Specials specials);
/// The word in the tables.
ULP_API const char* to_string(Overflow overflow);

/// The table as text, for people: one header and one row a format, each with as many cells as the header.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
/// The traits of every format.
ULP_API Table formats_table();

/// A number of the tables: six significant digits.
ULP_API std::string table_number(double value);

}  // namespace ulp::formats
