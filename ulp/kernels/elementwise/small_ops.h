// The table of small operations that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/element.h"

namespace ulp::kernels {

/// y = clamp(round((a - za) * ma [+ (b - zb) * mb]), lo, hi) + zy for u8; clamp(a [+ b], lo, hi) for floats.
struct ElementwiseArgs {
  float a_zero = 0, a_multiplier = 1, b_zero = 0, b_multiplier = 1;
  float lo = 0, hi = 0;
  int32_t y_zero = 0;
};

/// One row of pooling windows. `x` is the image, `top`/`left` the first window's corner (may be negative).
struct PoolRowArgs {
  const void* x;
  void* y;
  int64_t in_h, in_w, channels, out_w;
  int64_t kernel_h, kernel_w, stride_w, dilation_h, dilation_w;
  int64_t top, left;
  int64_t pad_h, pad_w;
  bool count_include_pad;
  bool ties_away;      ///< avg_pool of u8: avg_pool_u8()
  ElementwiseArgs u8;  ///< a_zero, a_multiplier = sx / sy, lo, hi, y_zero; with ties_away y_zero alone
};

struct SmallOps {
  void (*clamp)(DataType type, const void* x, void* y, int64_t n, const ElementwiseArgs& args);
  void (*add)(DataType type, const void* a, const void* b, void* y, int64_t n, const ElementwiseArgs& args);
  void (*requantize)(const uint8_t* x, uint8_t* y, int64_t n, const ElementwiseArgs& args);
  void (*quantize)(const float* x, uint8_t* y, int64_t n, const ElementwiseArgs& args);
  void (*dequantize)(const uint8_t* x, float* y, int64_t n, const ElementwiseArgs& args);
  void (*f32_to_bf16)(const float* x, uint16_t* y, int64_t n);
  void (*bf16_to_f32)(const uint16_t* x, float* y, int64_t n);
  void (*u8_to_i16)(const uint8_t* x, int16_t* y, int64_t n);
  /// Three rows of n elements of 1, 2 or 4 bytes, `step` elements apart, become n triples.
  void (*interleave)(int64_t element_size, const void* x, int64_t step, void* y, int64_t n);
  void (*softmax_row)(DataType type, const void* x, void* y, int64_t n);
  void (*max_pool_row)(DataType type, const PoolRowArgs& args);
  void (*avg_pool_row)(DataType type, const PoolRowArgs& args);
};

extern const SmallOps kSmallOpsPortable, kSmallOpsAvx2, kSmallOpsAvx512;

}  // namespace ulp::kernels
