// Products of matrices that come out of the network itself, many at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// How a matrix lies in memory, in elements.
struct MatrixLayout {
  int64_t offset = 0, row = 0, column = 1;
  int64_t item = 0;  ///< from item to item of the batch; 0 for one matrix for all
};

/// A dimension outside of the matrices, and the steps of both sides along it.
struct MatmulDimension {
  int64_t size = 1, a = 0, b = 0;
};

/// Sizes of y[item][dimensions][rows][columns] = a[rows][inner] b[inner][columns].
struct MatmulShape {
  int64_t rows = 1, inner = 1, columns = 1;
  std::vector<MatmulDimension> dimensions;
  MatrixLayout a, b;
  ElementFormat output = {};  ///< sums are in f32 whatever it is
};

/// Bytes of scratch for so many workers.
ULP_API size_t matmul_workspace_bytes(const MatmulShape& shape, int workers);

/// `type` of both sides: f32, or bf16, which is widened as it is read. y: dense; `workspace` is 64-byte aligned.
ULP_API void matmul(const MatmulShape& shape, DataType a_type, const void* a, DataType b_type, const void* b,
                    void* y, int64_t batch, void* workspace, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
