// Matrices of floats as int8 codes, and their products: our kernels on the CPU, LibTorch's operators
// elsewhere. Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ulp/base/export.h"
#include "ulp/formats/random_bits.h"
#include "ulp/kernels/training/int8_quantizers.h"

namespace ulp::amp {

/// Rows of codes. Scales, in fp32: one a row, one, or one for each block of 32 x 32.
struct Int8Tensor {
  at::Tensor codes;  ///< int8 [rows][inner], contiguous
  at::Tensor scale;
};

/// What to make of a matrix [rows, columns]. What was not asked for is undefined.
struct Int8Pair {
  Int8Tensor straight;  ///< codes [rows][columns]
  Int8Tensor across;    ///< codes [columns][rows], of the transpose; blocks: the scales are transposed, too
};

/// How a matrix becomes codes.
struct Int8How {
  kernels::Int8Scales scales = kernels::Int8Scales::rows;
  bool straight = true, across = false;
  std::optional<formats::RandomKey> key = std::nullopt;  ///< round at random
};

/// True for a matrix that lies in memory as the transpose of a contiguous one.
bool is_transposed(const at::Tensor& matrix);

/// Quantizes a matrix of any floating-point type, as kernels/training/int8_codes.h defines it.
ULP_API Int8Pair int8_quantize(const at::Tensor& matrix, const Int8How& how);
/// The transpose of a matrix with one scale, or of blocks.
Int8Tensor int8_transpose(const Int8Tensor& matrix);

/// a b^T + bias in `dtype`: float(sum) * (sa * sb) + bias, rounded to it. `bias` [rows of b] or undefined.
/// Sums of any length.
ULP_API at::Tensor int8_product(const Int8Tensor& a, const Int8Tensor& b, const at::Tensor& bias,
                                at::ScalarType dtype);

/// The same by LibTorch's operators, for devices without kernels of ours. Rounding at random has other bits.
ULP_API Int8Pair int8_quantize_generic(const at::Tensor& matrix, const Int8How& how);
ULP_API at::Tensor int8_product_generic(const Int8Tensor& a, const Int8Tensor& b, const at::Tensor& bias,
                                        at::ScalarType dtype);

}  // namespace ulp::amp
