#include "ulp/kernels/elementwise/rows.h"

#include <algorithm>

#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const RowOps*> kTables[] = {
    {Isa::avx512, &kRowOpsAvx512}, {Isa::avx2, &kRowOpsAvx2}, {Isa::portable, &kRowOpsPortable}};

}  // namespace

const RowOps& row_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y, int64_t rows,
                int64_t columns, Isa isa, const Parallel& parallel) {
  const int64_t rows_per_task = std::max<int64_t>(1, 8192 / columns);
  const RowOps& ops = row_ops(isa);
  parallel.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      ops.layer_norm(x + row * columns, weight, bias, epsilon, y + row * columns, columns);
    }
  });
}

}  // namespace ulp::kernels
