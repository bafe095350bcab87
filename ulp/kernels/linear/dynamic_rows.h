// Quantizing the rows of a matrix by their own bounds, into the form that the tile kernels read; internal to
// the room.
#pragma once

#include "ulp/base/parallel.h"
#include "ulp/kernels/conv/staging.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// Codes of all rows, with the scale and zero point of each.
struct QuantizedRows {
  const uint8_t* data;
  const float* scale;
  const int32_t* zero;
};

struct RowOps;
struct SmallOps;

class DynamicRows {
 public:
  /// `row_bytes`: from row to row of the codes. `copy` widens bytes for kernels that do not read them as they
  /// are; null: codes are bytes.
  DynamicRows(int64_t columns, int64_t row_bytes, bool per_tensor, CopyFn copy, Isa isa);

  size_t workspace_bytes(int64_t rows, int workers) const;
  /// The result lies in the workspace.
  QuantizedRows quantize(int64_t rows, const float* x, void* workspace, const Parallel& parallel) const;

 private:
  void quantize_row(const float* x, float scale, int32_t zero, uint8_t* to, uint8_t* scratch) const;
  int64_t scratch_bytes() const { return copy_ == nullptr ? 0 : round_up(columns_, 64); }

  int64_t columns_, row_bytes_;
  bool per_tensor_;
  CopyFn copy_;
  const RowOps& row_ops_;
  const SmallOps& small_ops_;
};

}  // namespace ulp::kernels
