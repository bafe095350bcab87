#include "ulp/kernels/linear/dynamic_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ulp/kernels/elementwise/row_ops.h"
#include "ulp/kernels/elementwise/rows.h"
#include "ulp/kernels/elementwise/small_ops_table.h"
#include "ulp/kernels/linear/dynamic_linear.h"

namespace ulp::kernels {
namespace {

Affine affine_of(const RowRange& range) {
  if (range.finite) return dynamic_affine(range.min, range.max);
  return {std::numeric_limits<float>::quiet_NaN(), 0};
}

}  // namespace

Affine dynamic_affine(float min, float max) {
  const double span = (double{max} - double{min}) / 255;
  if (span == 0) return {1.0F, 0};
  // A subnormal scale would have no finite inverse.
  const double scale = std::max(span, 0x1p-126);
  const double zero = std::clamp(std::nearbyint(-double{min} / scale), 0.0, 255.0);
  return {static_cast<float>(scale), static_cast<int32_t>(zero)};
}

DynamicRows::DynamicRows(int64_t columns, int64_t row_bytes, bool per_tensor, CopyFn copy, Isa isa)
    : columns_(columns),
      row_bytes_(row_bytes),
      per_tensor_(per_tensor),
      copy_(copy),
      row_ops_(row_ops(isa)),
      small_ops_(small_ops(isa)) {}

size_t DynamicRows::workspace_bytes(int64_t rows, int workers) const {
  return static_cast<size_t>(round_up(rows * row_bytes_, 64) + 2 * round_up(rows * 4, 64) +
                             workers * (scratch_bytes() + 64));
}

QuantizedRows DynamicRows::quantize(int64_t rows, const float* x, void* workspace,
                                    const Parallel& parallel) const {
  uint8_t* data = static_cast<uint8_t*>(workspace);
  float* scale = reinterpret_cast<float*>(data + round_up(rows * row_bytes_, 64));
  int32_t* zero = reinterpret_cast<int32_t*>(scale + round_up(rows, 16));
  uint8_t* per_worker = reinterpret_cast<uint8_t*>(zero + round_up(rows, 16));
  const int64_t stride = scratch_bytes() + 64;
  const int64_t per_task = std::max<int64_t>(1, 16384 / columns_), tasks = ceil_div(rows, per_task);
  Affine shared;
  if (per_tensor_) {
    for (int worker = 0; worker < parallel.workers(); ++worker) {
      *reinterpret_cast<RowRange*>(per_worker + worker * stride) = {};
    }
    const auto merge = [](RowRange& to, const RowRange& from) {
      to = {std::min(to.min, from.min), std::max(to.max, from.max), to.finite && from.finite};
    };
    parallel.run(tasks, [&](int64_t task, int worker) {
      const int64_t first = task * per_task, count = std::min(rows - first, per_task);
      merge(*reinterpret_cast<RowRange*>(per_worker + worker * stride),
            row_ops_.range(x + first * columns_, count * columns_));
    });
    RowRange whole;
    for (int worker = 0; worker < parallel.workers(); ++worker) {
      merge(whole, *reinterpret_cast<RowRange*>(per_worker + worker * stride));
    }
    shared = affine_of(whole);
  }
  parallel.run(tasks, [&](int64_t task, int worker) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t row = task * per_task; row < end; ++row) {
      const float* from = x + row * columns_;
      const Affine q = per_tensor_ ? shared : affine_of(row_ops_.range(from, columns_));
      scale[row] = q.scale;
      zero[row] = q.zero_point;
      quantize_row(from, q.scale, q.zero_point, data + row * row_bytes_, per_worker + worker * stride);
    }
  });
  return {data, scale, zero};
}

void DynamicRows::quantize_row(const float* x, float scale, int32_t zero, uint8_t* to,
                               uint8_t* scratch) const {
  ElementwiseArgs args;
  args.a_multiplier = 1.0F / scale;
  args.lo = static_cast<float>(-zero);
  args.hi = static_cast<float>(255 - zero);
  args.y_zero = zero;
  uint8_t* codes = copy_ == nullptr ? to : scratch;
  small_ops_.quantize(x, codes, columns_, args);
  if (copy_ != nullptr) copy_(codes, to, columns_);
  const int64_t written = columns_ * (copy_ == nullptr ? 1 : 2);
  std::memset(to + written, 0, static_cast<size_t>(row_bytes_ - written));
}

}  // namespace ulp::kernels
