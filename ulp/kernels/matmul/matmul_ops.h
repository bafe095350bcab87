// The inner loops of matmul that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// c[rows][columns] = (or +=) a[rows][depth] b[depth][width of a panel].
struct MatmulPanel {
  const float* a;
  int64_t a_stride;
  const float* b;  ///< as wide as a panel in memory, whatever `columns` is
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t rows, depth, columns;
  bool adds;
};

struct MatmulOps {
  int64_t width;  ///< columns of a panel
  void (*panel)(const MatmulPanel&);
};

extern const MatmulOps kMatmulOpsPortable, kMatmulOpsAvx2, kMatmulOpsAvx512, kMatmulOpsNeon;

/// Those for an instruction set.
const MatmulOps& matmul_ops(Isa isa);

}  // namespace ulp::kernels
