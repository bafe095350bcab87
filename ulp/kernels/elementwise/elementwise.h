// Element by element operations on dense buffers, softmax over rows, and conversions between element types.
//
// All take n elements, may run in place (y == x) when the element types are equal, allocate nothing and split
// their work with `parallel`. u8 results are the same bits on every instruction set.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// y = activation(x). u8: input and output share the quantizer `q`; relu is max(x, zero point) there.
ULP_API void activate(DataType type, Activation activation, const void* x, void* y, int64_t n, Affine q,
                      Isa isa, const Parallel& parallel);

/// y = activation(a + b). u8: y = round((a - za) * (sa / sy) + (b - zb) * (sb / sy)) + zy, clamped to [0,
/// 255].
ULP_API void add(DataType type, Activation activation, const void* a, const void* b, void* y, int64_t n,
                 Affine aq, Affine bq, Affine yq, Isa isa, const Parallel& parallel);

/// y = clamp(round(x * (1 / scale)) + zero_point, 0, 255), half to even; a NaN becomes 0.
ULP_API void quantize(const float* x, uint8_t* y, int64_t n, Affine q, Isa isa, const Parallel& parallel);

/// y = (x - zero_point) * scale.
ULP_API void dequantize(const uint8_t* x, float* y, int64_t n, Affine q, Isa isa, const Parallel& parallel);

/// From one u8 quantizer to another: y = round((x - zx) * (sx / sy)) + zy, clamped to [0, 255].
ULP_API void requantize(const uint8_t* x, uint8_t* y, int64_t n, Affine xq, Affine yq, Isa isa,
                        const Parallel& parallel);

/// requantize() of x: [rows, channels] into columns [offset, offset + channels) of y: [rows, total_channels].
ULP_API void requantize_channels(const uint8_t* x, uint8_t* y, int64_t rows, int64_t channels,
                                 int64_t total_channels, int64_t offset, Affine xq, Affine yq, Isa isa,
                                 const Parallel& parallel);

/// Round half to even; a NaN stays a NaN, what is too large becomes infinite.
ULP_API void convert_f32_to_bf16(const float* x, uint16_t* y, int64_t n, Isa isa, const Parallel& parallel);
/// Exact.
ULP_API void convert_bf16_to_f32(const uint16_t* x, float* y, int64_t n, Isa isa, const Parallel& parallel);

/// Softmax of each of `rows` rows of `columns` elements, f32 or bf16, computed in f32.
ULP_API void softmax(DataType type, const void* x, void* y, int64_t rows, int64_t columns, Isa isa,
                     const Parallel& parallel);

}  // namespace ulp::kernels
