// Matrices of floats as symmetric int8 codes, for products in training: by rows, by columns, by one scale, or
// by blocks; as they lie and transposed.
//
//   scale = max(|x|) / 127 over those that share it, at least 2^-126; 1 where all are 0; NaN where one is
//           not finite
//   code  = round(x * (1 / scale)), from -127 to 127
//
// in fp32, one rounding an operation: every instruction set and any number of workers gives the same bits.
// Codes of a scale that is NaN mean nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/formats/random_bits.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Who shares a scale.
enum class Int8Scales : uint8_t {
  rows,     ///< a row: [rows]
  columns,  ///< a column: [columns]
  tensor,   ///< all: one
  blocks    ///< 32 x 32 (Xi et al. 2024, "Jetfire"): [ceil(rows / 32)][ceil(columns / 32)]
};

/// Rows and columns of a block.
inline constexpr int64_t kInt8Block = 32;

/// How many scales there are.
ULP_API int64_t int8_scale_count(Int8Scales scales, int64_t rows, int64_t columns);

/// What is quantized: dense [rows][columns] of f32 or bf16.
struct FloatMatrix {
  DataType type = DataType::f32;
  const void* data = nullptr;
  int64_t rows = 0, columns = 0;
};

/// Where it goes. Codes that nobody wants are null.
struct Int8Target {
  float* scale = nullptr;        ///< int8_scale_count() of them
  int8_t* codes = nullptr;       ///< [rows][columns]
  int8_t* transposed = nullptr;  ///< [columns][rows]
};

/// Quantizes a matrix. With a key rounding is stochastic: up with the probability of the fraction, to 24
/// bits; the random bits of row r and column c are those of index r * round_up(columns, 64) + c, whatever is
/// asked for. Without a key it is half to even. Throws ulp::Error for elements that are neither f32 nor bf16.
ULP_API void int8_quantize(const FloatMatrix& matrix, Int8Scales scales, const Int8Target& target,
                           const std::optional<formats::RandomKey>& key, Isa isa, const Parallel& parallel);

/// to[c][r] = from[r][c] of dense codes [rows][columns].
ULP_API void int8_transpose(const int8_t* from, int64_t rows, int64_t columns, int8_t* to, Isa isa,
                            const Parallel& parallel);

}  // namespace ulp::kernels
