#include "ulp/kernels/elementwise/rows.h"

#include <algorithm>

#include "ulp/kernels/elementwise/row_ops.h"

namespace ulp::kernels {

const RowOps& row_ops(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return kRowOpsPortable;
    case Isa::avx2:
      return kRowOpsAvx2;
    default:
      return kRowOpsAvx512;
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y, int64_t rows,
                int64_t columns, Isa isa, const Parallel& parallel) {
  const int64_t rows_per_task = std::max<int64_t>(1, 8192 / columns);
  parallel.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      row_ops(isa).layer_norm(x + row * columns, weight, bias, epsilon, y + row * columns, columns);
    }
  });
}

}  // namespace ulp::kernels
