// The product of two matrices of int8 codes, both given by rows, as training needs it: nothing is packed
// beforehand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Rows of symmetric codes: number = code * scale.
struct Int8Rows {
  const int8_t* codes = nullptr;
  int64_t step = 0;              ///< codes from one row to the next
  const float* scale = nullptr;  ///< one a row, or a single one
  bool scale_by_row = false;
};

/// The largest `inner`: as kMaxDynamicFeatures of linear/dynamic_linear.h, since codes travel as bytes
/// without sign.
inline constexpr int64_t kMaxInt8Inner = int64_t{1} << 16;

/// y[r][c] = float(sum_k a[r][k] b[c][k]) * (sa[r] * sb[c]) + bias[c] [+ y[r][c]]. The sum is exact in int32.
/// What follows is rounded operation by operation in fp32, then to `output` (half to even): the same bits on
/// every instruction set and for any number of workers. A scale that is NaN gives NaN.
struct Int8Product {
  int64_t rows = 0, columns = 0;  ///< of the result
  int64_t inner = 0;              ///< length of the sums, up to kMaxInt8Inner
  Int8Rows a;                     ///< [rows][inner]
  Int8Rows b;                     ///< [columns][inner]
  const float* bias = nullptr;    ///< [columns], or null: 0
  DataType output = DataType::f32;
  void* y = nullptr;        ///< [rows][columns], f32 or bf16 as `output` says
  bool accumulate = false;  ///< f32 only: adds to what is in y
};

/// Bytes of scratch for int8_product(); on a cache line.
ULP_API size_t int8_product_workspace(const Int8Product& product, Isa isa);

/// Computes the product. No allocation. Throws ulp::Error for an `inner` beyond kMaxInt8Inner, for an output
/// that is not f32 or bf16, and for bf16 that is to accumulate. Nothing happens where rows or columns are 0.
ULP_API void int8_product(const Int8Product& product, void* workspace, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
