#include "ulp/formats/format.h"

#include <cmath>
#include <cstdio>

#include "ulp/base/error.h"
#include "ulp/formats/convert.h"

namespace ulp::formats {

namespace {

using enum Kind;
using enum Specials;
using enum Overflow;

// clang-format off
constexpr Format kFormats[] = {
    //  name            kind      exp mant specials          overflow      stored in
    {"fp64",            floating, 11, 52,  ieee,             to_infinity},
    {"fp32",            floating,  8, 23,  ieee,             to_infinity},
    {"tf32",            floating,  8, 10,  ieee,             to_infinity,  32},
    {"bf16",            floating,  8,  7,  ieee,             to_infinity},
    {"fp16",            floating,  5, 10,  ieee,             to_infinity},
    {"fp8_e4m3fn",      floating,  4,  3,  nan_only,         saturate},
    {"fp8_e4m3fnuz",    floating,  4,  3,  nan_for_neg_zero, to_nan},
    {"fp8_e4m3",        floating,  4,  3,  ieee,             to_infinity},
    {"fp8_e5m2",        floating,  5,  2,  ieee,             to_infinity},
    {"fp8_e5m2fnuz",    floating,  5,  2,  nan_for_neg_zero, to_nan},
    {"fp6_e2m3",        floating,  2,  3,  none,             saturate},
    {"fp6_e3m2",        floating,  3,  2,  none,             saturate},
    {"fp4_e2m1",        floating,  2,  1,  none,             saturate},
    {"e8m0",            scale,     8,  0,  nan_only,         to_nan},
    {"int8",            integer,   0,  7,  none,             saturate},
    {"int4",            integer,   0,  3,  none,             saturate},
    {"int2",            integer,   0,  1,  none,             saturate},
    {"binary",          binary,    0,  0,  none,             saturate},
};
// clang-format on

// "fp8_e4m3" is also "e4m3".
std::string_view short_name(std::string_view name) {
  return name.starts_with("fp") ? name.substr(name.find('_') + 1) : name;
}

}  // namespace

uint64_t Format::max_code() const {
  switch (specials) {
    case ieee:
      return infinity_code() - 1;
    case nan_only:
      return magnitude_mask() - 1;
    default:
      return magnitude_mask();
  }
}

uint64_t Format::infinity_code() const {
  if (!has_infinity()) fail("formats.infinity_code", "expected a format with infinities, got ", name);
  return magnitude_mask() - ((uint64_t{1} << mantissa_bits) - 1);
}

uint64_t Format::nan_code() const {
  switch (specials) {
    case ieee:
      return infinity_code() | uint64_t{1} << (mantissa_bits - 1);
    case nan_only:
      return magnitude_mask();
    case nan_for_neg_zero:
      return sign_mask();
    default:
      fail("formats.nan_code", "expected a format with NaN, got ", name);
  }
}

double Format::max() const {
  return decode(*this, max_code());
}

double Format::lowest() const {
  if (exponent_bits == 0) return decode(*this, sign_mask());
  return is_signed() ? -max() : 0.0;
}

double Format::smallest_normal() const {
  return std::ldexp(1.0, min_exponent());
}

double Format::smallest_subnormal() const {
  return kind == floating ? std::ldexp(1.0, min_exponent() - mantissa_bits) : 0.0;
}

double Format::epsilon() const {
  if (kind == binary) return 2.0;
  return kind == integer ? 1.0 : std::ldexp(1.0, -mantissa_bits);
}

int Format::decimal_digits() const {
  return static_cast<int>(mantissa_bits * std::log10(2.0));
}

std::span<const Format> all() {
  return kFormats;
}

const Format& find(std::string_view name) {
  std::string known;
  for (const Format& format : kFormats) {
    if (name == format.name || name == short_name(format.name)) return format;
    known.append(known.empty() ? "" : ", ").append(format.name);
  }
  fail("formats.find", "expected one of ", known, ", got '", name, "'");
}

const char* to_string(Kind kind) {
  switch (kind) {
    case floating:
      return "floating";
    case scale:
      return "scale";
    case binary:
      return "binary";
    default:
      return "integer";
  }
}

const char* to_string(Specials specials) {
  switch (specials) {
    case ieee:
      return "inf, NaN";
    case nan_only:
      return "NaN";
    case nan_for_neg_zero:
      return "NaN at -0";
    default:
      return "none";
  }
}

const char* to_string(Overflow overflow) {
  switch (overflow) {
    case to_infinity:
      return "to inf";
    case saturate:
      return "saturates";
    default:
      return "to NaN";
  }
}

std::string table_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

Table formats_table() {
  Table table{{"format", "bits", "exponent", "mantissa", "bias", "max", "smallest normal",
               "smallest subnormal", "epsilon", "digits", "specials", "overflow"},
              {}};
  for (const Format& format : kFormats) {
    const double subnormal = format.smallest_subnormal();
    table.rows.push_back(
        {std::string(format.name), std::to_string(format.bits()), std::to_string(format.exponent_bits),
         std::to_string(format.mantissa_bits), std::to_string(format.bias()), table_number(format.max()),
         table_number(format.smallest_normal()), subnormal > 0 ? table_number(subnormal) : "-",
         table_number(format.epsilon()), std::to_string(format.decimal_digits()), to_string(format.specials),
         to_string(format.overflow)});
  }
  return table;
}

}  // namespace ulp::formats
