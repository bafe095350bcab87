#include "ulp/kernels/elementwise/rows.h"

#include <algorithm>

#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/isa/dispatch.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const RowOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kRowOpsAvx512)},
                                              {Isa::avx2, ULP_ON_X86(&kRowOpsAvx2)},
                                              {Isa::portable, &kRowOpsPortable}};

}  // namespace

const RowOps& row_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

size_t layer_norm_workspace_bytes(const LayerNormShape& shape, int workers) {
  if (shape.input.is_f32() && shape.output.is_f32()) return 0;
  return static_cast<size_t>(workers * round_up(shape.columns, 16)) * sizeof(float);
}

void layer_norm(const LayerNormShape& shape, const void* x, const float* weight, const float* bias, void* y,
                int64_t rows, void* workspace, Isa isa, const Parallel& parallel) {
  const int64_t n = shape.columns, rows_per_task = std::max<int64_t>(1, 8192 / n);
  const RowOps& ops = row_ops(isa);
  const TypedRows input("kernels.layer_norm", shape.input, isa);
  const TypedRows output("kernels.layer_norm", shape.output, isa);
  parallel.run((rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int worker) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    float* buffer = static_cast<float*>(workspace) + worker * round_up(n, 16);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      const float* from = input.read(x, row * n, n, buffer);
      float* to = output.target(y, row * n, buffer);
      ops.layer_norm(from, weight, bias, shape.epsilon, to, n);
      output.write(to, y, row * n, n);
    }
  });
}

}  // namespace ulp::kernels
