// The product of two matrices of int8 codes with a scale for each block of 32 x 32 (Xi et al. 2024,
// "Jetfire").
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Dense rows of symmetric codes: number = code * scale[row / 32][column / 32].
struct Int8Blocks {
  const int8_t* codes = nullptr;
  const float* scale = nullptr;  ///< [ceil(rows / 32)][ceil(inner / 32)]
};

/// y[r][c] = sum_b float(sum_k a[r][k] b[c][k]) * (sa[r / 32][b] * sb[c / 32][b]) + bias[c], with k in block
/// b. The inner sum is exact in int32; all else is rounded operation by operation in fp32, b in ascending
/// order from 0, and in the end to `output` (half to even): the same bits on every instruction set and for
/// any number of workers.
struct Int8BlockProduct {
  int64_t rows = 0, columns = 0;  ///< of the result
  int64_t inner = 0;              ///< length of the sums
  Int8Blocks a;                   ///< [rows][inner]
  Int8Blocks b;                   ///< [columns][inner]
  const float* bias = nullptr;    ///< [columns], or null: 0
  DataType output = DataType::f32;
  void* y = nullptr;  ///< [rows][columns], f32 or bf16 as `output` says
};

/// Bytes of scratch for int8_block_product(); on a cache line.
ULP_API size_t int8_block_product_workspace(const Int8BlockProduct& product, Isa isa);

/// Computes the product. No allocation. Throws ulp::Error for an output that is not f32 or bf16. Nothing
/// happens where rows or columns are 0.
ULP_API void int8_block_product(const Int8BlockProduct& product, void* workspace, Isa isa,
                                const Parallel& parallel);

}  // namespace ulp::kernels
