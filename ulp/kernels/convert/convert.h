// Converting arrays to and from the number formats of the table. Each element becomes what formats::encode,
// decode and round_to_format make of it, bit for bit, on every instruction set and any number of threads.
//
// All take n elements, allocate nothing and split their work with `parallel`. Codes of up to 8 bits lie one
// in a byte, of 9 to 16 bits one in a 16-bit word. An fp32 number is the input; fp64 and fp32 are no targets.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/block.h"
#include "ulp/formats/convert.h"
#include "ulp/formats/random_bits.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// How to cast an array. Stochastic rounding gives element i the bits formats::random_bits(key, first + i),
/// so a part of an array comes out as in the whole when `first` is where it begins.
struct ArrayCast {
  formats::Rounding rounding = formats::Rounding::nearest_even;
  std::optional<formats::Overflow> overflow = std::nullopt;  ///< replaces the format's rule
  formats::RandomKey key = {};
  uint64_t first = 0;
};

/// Codes of x. An error when the format's codes do not fit the type of y or need less, for fp64 and fp32, and
/// for an overflow rule that the format cannot express.
ULP_API void encode(const formats::Format& format, const float* x, uint8_t* y, int64_t n,
                    const ArrayCast& cast, Isa isa, const Parallel& parallel);
/// Converts for formats of 9 to 16 bits.
ULP_API void encode(const formats::Format& format, const float* x, uint16_t* y, int64_t n,
                    const ArrayCast& cast, Isa isa, const Parallel& parallel);

/// Values of codes; bits above the format's are ignored. Errors as encode's.
ULP_API void decode(const formats::Format& format, const uint8_t* x, float* y, int64_t n, Isa isa,
                    const Parallel& parallel);
/// Converts for formats of 9 to 16 bits.
ULP_API void decode(const formats::Format& format, const uint16_t* x, float* y, int64_t n, Isa isa,
                    const Parallel& parallel);

/// y = x as the format holds it; tf32, too. In place (y == x) is fine.
ULP_API void round_to_format(const formats::Format& format, const float* x, float* y, int64_t n,
                             const ArrayCast& cast, Isa isa, const Parallel& parallel);

/// Blocks of format.size neighbours, the last one shorter when n is no multiple: `codes` gets n bytes,
/// `scales` one byte a block. `tensor_scale` as formats::tensor_scale() gives it, 1 for formats without it.
/// Elements saturate unless `cast` says otherwise.
ULP_API void quantize_blocks(const formats::BlockFormat& format, const float* x, float tensor_scale,
                             uint8_t* scales, uint8_t* codes, int64_t n, const ArrayCast& cast, Isa isa,
                             const Parallel& parallel);

/// y = element * scale.
ULP_API void dequantize_blocks(const formats::BlockFormat& format, const uint8_t* scales,
                               const uint8_t* codes, float tensor_scale, float* y, int64_t n, Isa isa,
                               const Parallel& parallel);

}  // namespace ulp::kernels
