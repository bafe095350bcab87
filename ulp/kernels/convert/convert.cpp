#include "ulp/kernels/convert/convert.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/kernels/common/split.h"
#include "ulp/kernels/convert/convert_ops.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

using formats::BlockFormat;
using formats::Format;
using formats::Kind;
using formats::Overflow;

constexpr Variant<const ConvertOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kConvertOpsAvx512)},
                                                  {Isa::avx2, ULP_ON_X86(&kConvertOpsAvx2)},
                                                  {Isa::portable, &kConvertOpsPortable}};

const ConvertOps& convert_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

LaneKind lane_kind(const Format& format) {
  switch (format.kind) {
    case Kind::scale:
      return LaneKind::scale;
    case Kind::integer:
      return LaneKind::integer;
    case Kind::binary:
      return LaneKind::binary;
    case Kind::floating:
      break;
  }
  return format.min_exponent() == -126 ? LaneKind::wide : LaneKind::floating;
}

uint64_t overflow_code(const char* where, const Format& format, Overflow rule) {
  if (rule == Overflow::saturate) return format.max_code();
  if (rule == Overflow::to_infinity && format.has_infinity()) return format.infinity_code();
  if (rule == Overflow::to_nan && format.has_nan()) return format.nan_code();
  fail(where, "expected an overflow rule that ", format.name, " can express, got '", to_string(rule), "'");
}

LaneFormat lane_format(const char* where, const Format& format, std::optional<Overflow> rule = {}) {
  if (format.bits() > 19) fail(where, "expected a format narrower than fp32, got ", format.name);
  LaneFormat out;
  out.kind = lane_kind(format);
  out.mantissa_bits = static_cast<uint32_t>(format.mantissa_bits);
  out.min_field = static_cast<uint32_t>(format.min_exponent() + 127);
  out.sign_shift = static_cast<uint32_t>(format.bits() - 1);
  out.magnitude_mask = static_cast<uint32_t>(format.magnitude_mask());
  out.max_code = static_cast<uint32_t>(format.max_code());
  out.overflow_code = static_cast<uint32_t>(overflow_code(where, format, rule.value_or(format.overflow)));
  if (format.has_infinity()) out.infinity_code = static_cast<uint32_t>(format.infinity_code());
  if (format.has_nan()) out.nan_code = static_cast<uint32_t>(format.nan_code());
  out.nan_at_neg_zero = format.specials == formats::Specials::nan_for_neg_zero;
  out.smallest = static_cast<float>(format.smallest_subnormal());
  out.lowest = static_cast<float>(format.lowest());
  out.highest = static_cast<float>(format.max());
  return out;
}

void check_width(const char* where, const Format& format, int bits) {
  if (format.bits() > bits || (bits == 16 && format.bits() <= 8)) {
    fail(where, "expected a format of ", bits == 16 ? "9 to 16" : "1 to 8", " bits, got ", format.name,
         " of ", format.bits());
  }
}

LaneRounding lane_rounding(formats::Rounding rounding) {
  switch (rounding) {
    case formats::Rounding::nearest_even:
      return LaneRounding::nearest_even;
    case formats::Rounding::toward_zero:
      return LaneRounding::toward_zero;
    case formats::Rounding::stochastic:
      break;
  }
  return LaneRounding::stochastic;
}

LaneCast lane_cast(const ArrayCast& cast, int64_t begin) {
  return {lane_rounding(cast.rounding), cast.key, cast.first + static_cast<uint64_t>(begin)};
}

/// The loops know blocks that divide a group of random words, and one way to a scale for each kind of it.
void check_blocks(const char* where, const BlockFormat& format) {
  check_width(where, format.element(), 8);
  if (format.size < 1 || formats::kRandomGroup % format.size != 0) {
    fail(where, "expected blocks whose size divides ", formats::kRandomGroup, ", got ", format.name, " of ",
         format.size);
  }
  const Kind kind = format.tensor_scale ? Kind::floating : Kind::scale;
  if (format.scale().kind != kind || format.scale().bits() > 8) {
    fail(where, "expected a scale of kind '", to_string(kind), "' and 8 bits for ", format.name, ", got ",
         format.scale().name);
  }
}

LaneBlocks lane_blocks(const char* where, const BlockFormat& format, float tensor_scale,
                       std::optional<Overflow> rule) {
  if (!std::isfinite(tensor_scale) || tensor_scale <= 0 || (!format.tensor_scale && tensor_scale != 1)) {
    fail(where, "expected a tensor scale that is ", format.tensor_scale ? "finite and above 0" : "1", " for ",
         format.name, ", got ", tensor_scale);
  }
  check_blocks(where, format);
  LaneBlocks out;
  out.element = lane_format(where, format.element(), rule.value_or(Overflow::saturate));
  out.scale = lane_format(where, format.scale());
  out.size = format.size;
  out.element_exponent = std::ilogb(format.element().max());
  out.element_max = static_cast<float>(format.element().max());
  out.tensor_scale = tensor_scale;
  return out;
}

/// `op` is the member of ConvertOps for codes of this type.
template <typename Code, typename Op>
void encode_with(Op op, const Format& format, const float* x, Code* y, int64_t n, const ArrayCast& cast,
                 Isa isa, const Parallel& parallel) {
  check_width("kernels.encode", format, 8 * sizeof(Code));
  const LaneFormat lanes = lane_format("kernels.encode", format, cast.overflow);
  split(n, parallel, [&](int64_t begin, int64_t count) {
    (convert_ops(isa).*op)(lanes, x + begin, y + begin, count, lane_cast(cast, begin));
  });
}

template <typename Code, typename Op>
void decode_with(Op op, const Format& format, const Code* x, float* y, int64_t n, Isa isa,
                 const Parallel& parallel) {
  check_width("kernels.decode", format, 8 * sizeof(Code));
  const LaneFormat lanes = lane_format("kernels.decode", format);
  split(n, parallel,
        [&](int64_t begin, int64_t count) { (convert_ops(isa).*op)(lanes, x + begin, y + begin, count); });
}

}  // namespace

void encode(const Format& format, const float* x, uint8_t* y, int64_t n, const ArrayCast& cast, Isa isa,
            const Parallel& parallel) {
  encode_with(&ConvertOps::encode_bytes, format, x, y, n, cast, isa, parallel);
}

void encode(const Format& format, const float* x, uint16_t* y, int64_t n, const ArrayCast& cast, Isa isa,
            const Parallel& parallel) {
  encode_with(&ConvertOps::encode_words, format, x, y, n, cast, isa, parallel);
}

void decode(const Format& format, const uint8_t* x, float* y, int64_t n, Isa isa, const Parallel& parallel) {
  decode_with(&ConvertOps::decode_bytes, format, x, y, n, isa, parallel);
}

void decode(const Format& format, const uint16_t* x, float* y, int64_t n, Isa isa, const Parallel& parallel) {
  decode_with(&ConvertOps::decode_words, format, x, y, n, isa, parallel);
}

void round_to_format(const Format& format, const float* x, float* y, int64_t n, const ArrayCast& cast,
                     Isa isa, const Parallel& parallel) {
  const LaneFormat lanes = lane_format("kernels.round_to_format", format, cast.overflow);
  split(n, parallel, [&](int64_t begin, int64_t count) {
    convert_ops(isa).round(lanes, x + begin, y + begin, count, lane_cast(cast, begin));
  });
}

void quantize_blocks(const BlockFormat& format, const float* x, float tensor_scale, uint8_t* scales,
                     uint8_t* codes, int64_t n, const ArrayCast& cast, Isa isa, const Parallel& parallel) {
  const LaneBlocks blocks = lane_blocks("kernels.quantize_blocks", format, tensor_scale, cast.overflow);
  split(n, parallel, [&](int64_t begin, int64_t count) {
    convert_ops(isa).quantize(blocks, x + begin, scales + begin / blocks.size, codes + begin, count,
                              lane_cast(cast, begin));
  });
}

void dequantize_blocks(const BlockFormat& format, const uint8_t* scales, const uint8_t* codes,
                       float tensor_scale, float* y, int64_t n, Isa isa, const Parallel& parallel) {
  const LaneBlocks blocks = lane_blocks("kernels.dequantize_blocks", format, tensor_scale, {});
  split(n, parallel, [&](int64_t begin, int64_t count) {
    convert_ops(isa).dequantize(blocks, scales + begin / blocks.size, codes + begin, y + begin, count);
  });
}

}  // namespace ulp::kernels
