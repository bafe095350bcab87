// The bulk conversions, written so that the compiler vectorizes them. Included once by a file per instruction
// set, which names its table with ULP_CONVERT_OPS; everything here has internal linkage.
#include <cstdint>

#include "ulp/kernels/common/compiler.h"
#include "ulp/kernels/convert/convert_ops.h"
#ifdef __AVX512F__
#include "ulp/kernels/isa/random_avx512.h"
#endif

namespace ulp::kernels {
namespace {

constexpr int64_t kGroup = formats::kRandomGroup;

inline void random_group(formats::RandomKey key, uint64_t group, uint32_t* words) {
#ifdef __AVX512F__
  random_bits_of_group_avx512(key, group, words);
#else
  formats::random_bits_of_group(key, group, words);
#endif
}

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <LaneKind K>
inline void put(uint8_t* y, int64_t i, uint32_t code, const LaneFormat&) {
  y[i] = static_cast<uint8_t>(code);
}
template <LaneKind K>
inline void put(uint16_t* y, int64_t i, uint32_t code, const LaneFormat&) {
  y[i] = static_cast<uint16_t>(code);
}
template <LaneKind K>
inline void put(float* y, int64_t i, uint32_t code, const LaneFormat& f) {
  y[i] = bits_to_float(decode_lane<K>(code, f));
}

// ULP_INDEPENDENT: y may be x, but element i depends on nothing else.
template <LaneKind K, LaneRounding R, typename Out>
inline void convert_run(const LaneFormat& f, const float* x, Out* y, int64_t n, const uint32_t* random) {
  ULP_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t drawn = R == LaneRounding::stochastic ? random[i] : 0U;
    put<K>(y, i, encode_lane<K, R>(float_to_bits(x[i]), drawn, f), f);
  }
}

template <LaneKind K, LaneRounding R, typename Out>
void convert(const LaneFormat& f, const float* x, Out* y, int64_t n, const LaneCast& cast) {
  const LaneFormat format = f;  // a copy, which no store can change
  if constexpr (R != LaneRounding::stochastic) {
    convert_run<K, R>(format, x, y, n, nullptr);
  } else {
    uint32_t words[kGroup];
    for (int64_t i = 0; i < n;) {
      const uint64_t index = cast.first + static_cast<uint64_t>(i);
      const int64_t offset = static_cast<int64_t>(index % kGroup);
      const int64_t count = smaller(kGroup - offset, n - i);
      random_group(cast.key, index / kGroup, words);
      if (count == kGroup) {
        convert_run<K, R>(format, x + i, y + i, kGroup, words);
      } else {
        convert_run<K, R>(format, x + i, y + i, count, words + offset);
      }
      i += count;
    }
  }
}

template <LaneKind K, typename Out>
void convert_kind(const LaneFormat& f, const float* x, Out* y, int64_t n, const LaneCast& cast) {
  switch (cast.rounding) {
    case LaneRounding::nearest_even:
      return convert<K, LaneRounding::nearest_even>(f, x, y, n, cast);
    case LaneRounding::toward_zero:
      return convert<K, LaneRounding::toward_zero>(f, x, y, n, cast);
    case LaneRounding::stochastic:
      return convert<K, LaneRounding::stochastic>(f, x, y, n, cast);
  }
}

/// Calls body.operator()<K>() for the kind of the format. No format of `wide` has codes of a byte, and those
/// of 16 bits are all `wide` or `floating`.
template <typename Code, typename Body>
void with_kind(const LaneFormat& f, const Body& body) {
  if constexpr (sizeof(Code) != 1) {
    if (f.kind == LaneKind::wide) return body.template operator()<LaneKind::wide>();
  }
  if constexpr (sizeof(Code) != 2) {
    if (f.kind == LaneKind::scale) return body.template operator()<LaneKind::scale>();
    if (f.kind == LaneKind::integer) return body.template operator()<LaneKind::integer>();
    if (f.kind == LaneKind::binary) return body.template operator()<LaneKind::binary>();
  }
  body.template operator()<LaneKind::floating>();
}

template <typename Out>
void convert_any(const LaneFormat& f, const float* x, Out* y, int64_t n, const LaneCast& cast) {
  with_kind<Out>(f, [&]<LaneKind K>() { convert_kind<K>(f, x, y, n, cast); });
}

template <LaneKind K, typename In>
void decode_kind(const LaneFormat& f, const In* x, float* y, int64_t n) {
  const LaneFormat format = f;
  ULP_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = bits_to_float(decode_lane<K>(x[i], format));
}

template <typename In>
void decode_any(const LaneFormat& f, const In* x, float* y, int64_t n) {
  with_kind<In>(f, [&]<LaneKind K>() { decode_kind<K>(f, x, y, n); });
}

/// Bits of the largest magnitude; infinities and NaN are larger than all numbers.
inline uint32_t largest_magnitude(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = lane_max(largest, float_to_bits(x[i]) & 0x7fffffffU);
  return largest;
}

/// The definition is formats::block_scale().
inline uint32_t block_scale(const LaneBlocks& b, uint32_t largest) {
  if (largest >= 0x7f800000U) return b.scale.nan_code;
  if (b.scale.kind == LaneKind::floating) {
    const float wanted = bits_to_float(largest) / b.element_max / b.tensor_scale;
    return lane_max(
        encode_lane<LaneKind::floating, LaneRounding::nearest_even>(float_to_bits(wanted), 0, b.scale), 1);
  }
  if (largest == 0) return 0;
  const int32_t exponent =
      largest >= 0x800000U ? static_cast<int32_t>(largest >> 23) - 127 : 31 - __builtin_clz(largest) - 149;
  const int32_t code = exponent - b.element_exponent + 127;
  return code < 0 ? 0U : static_cast<uint32_t>(code);
}

inline float scale_value(const LaneBlocks& b, uint32_t code) {
  if (b.scale.kind == LaneKind::scale) return bits_to_float(decode_lane<LaneKind::scale>(code, b.scale));
  return bits_to_float(decode_lane<LaneKind::floating>(code, b.scale)) * b.tensor_scale;
}

/// kSize: the block size where it is whole, else 0.
template <int64_t kSize>
inline uint32_t divide_block(const LaneBlocks& b, const float* x, float* scaled, int64_t count) {
  const int64_t n = kSize == 0 ? count : kSize;
  const uint32_t code = block_scale(b, largest_magnitude(x, n));
  const float scale = scale_value(b, code);
  if (scale != scale) {
    for (int64_t i = 0; i < n; ++i) scaled[i] = 0.0F;
  } else {
    for (int64_t i = 0; i < n; ++i) scaled[i] = x[i] / scale;
  }
  return code;
}

void quantize(const LaneBlocks& blocks, const float* x, uint8_t* scales, uint8_t* codes, int64_t n,
              const LaneCast& cast) {
  const LaneBlocks b = blocks;
  float scaled[kGroup];
  LaneCast here = cast;
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const int64_t count = smaller(kGroup, n - begin);
    for (int64_t at = 0; at < count; at += b.size) {
      const int64_t left = count - at;
      const float* from = x + begin + at;
      uint32_t code = 0;
      if (b.size == 32 && left >= 32) {
        code = divide_block<32>(b, from, scaled + at, 32);
      } else if (b.size == 16 && left >= 16) {
        code = divide_block<16>(b, from, scaled + at, 16);
      } else {
        code = divide_block<0>(b, from, scaled + at, smaller(b.size, left));
      }
      scales[(begin + at) / b.size] = static_cast<uint8_t>(code);
    }
    here.first = cast.first + static_cast<uint64_t>(begin);
    convert_any(b.element, scaled, codes + begin, count, here);
  }
}

template <LaneKind K, int64_t kSize>
inline void multiply_block(const LaneBlocks& b, float scale, const uint8_t* codes, float* y, int64_t count) {
  const int64_t n = kSize == 0 ? count : kSize;
  ULP_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    y[i] = bits_to_float(decode_lane<K>(codes[i], b.element)) * scale;
  }
}

template <LaneKind K>
void dequantize_kind(const LaneBlocks& blocks, const uint8_t* scales, const uint8_t* codes, float* y,
                     int64_t n) {
  const LaneBlocks b = blocks;
  for (int64_t begin = 0; begin < n; begin += b.size) {
    const float scale = scale_value(b, scales[begin / b.size]);
    const int64_t left = n - begin;
    if (b.size == 32 && left >= 32) {
      multiply_block<K, 32>(b, scale, codes + begin, y + begin, 32);
    } else if (b.size == 16 && left >= 16) {
      multiply_block<K, 16>(b, scale, codes + begin, y + begin, 16);
    } else {
      multiply_block<K, 0>(b, scale, codes + begin, y + begin, smaller(b.size, left));
    }
  }
}

void dequantize(const LaneBlocks& b, const uint8_t* scales, const uint8_t* codes, float* y, int64_t n) {
  with_kind<uint8_t>(b.element, [&]<LaneKind K>() { dequantize_kind<K>(b, scales, codes, y, n); });
}

}  // namespace

extern const ConvertOps ULP_CONVERT_OPS;
const ConvertOps ULP_CONVERT_OPS = {convert_any<uint8_t>,
                                    convert_any<uint16_t>,
                                    decode_any<uint8_t>,
                                    decode_any<uint16_t>,
                                    convert_any<float>,
                                    quantize,
                                    dequantize};

}  // namespace ulp::kernels
