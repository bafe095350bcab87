// The table of bulk conversions that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/random_bits.h"
#include "ulp/kernels/convert/convert_lanes.h"

namespace ulp::kernels {

/// What a conversion of an array does besides the format; element i draws random_bits(key, first + i).
struct LaneCast {
  LaneRounding rounding = LaneRounding::nearest_even;
  formats::RandomKey key;
  uint64_t first = 0;
};

/// A block format. Scales are powers of two, or e4m3 numbers times a number for the whole tensor.
struct LaneBlocks {
  LaneFormat element, scale;
  int64_t size = 0;              ///< values that share a scale; divides 64
  int32_t element_exponent = 0;  ///< of the largest element: 8 for e4m3
  float element_max = 0;
  float tensor_scale = 1;  ///< only where scale.kind is floating
};

struct ConvertOps {
  void (*encode_bytes)(const LaneFormat& f, const float* x, uint8_t* y, int64_t n, const LaneCast& cast);
  void (*encode_words)(const LaneFormat& f, const float* x, uint16_t* y, int64_t n, const LaneCast& cast);
  void (*decode_bytes)(const LaneFormat& f, const uint8_t* x, float* y, int64_t n);
  void (*decode_words)(const LaneFormat& f, const uint16_t* x, float* y, int64_t n);
  void (*round)(const LaneFormat& f, const float* x, float* y, int64_t n, const LaneCast& cast);
  void (*quantize)(const LaneBlocks& b, const float* x, uint8_t* scales, uint8_t* codes, int64_t n,
                   const LaneCast& cast);
  void (*dequantize)(const LaneBlocks& b, const uint8_t* scales, const uint8_t* codes, float* y, int64_t n);
};

extern const ConvertOps kConvertOpsPortable, kConvertOpsAvx2, kConvertOpsAvx512;

}  // namespace ulp::kernels
