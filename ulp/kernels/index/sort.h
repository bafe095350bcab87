// Sorting along a dimension, and the first few of what is sorted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"

namespace ulp::kernels {

/// The sizes of a sort and of its results.
struct SortShape {
  DataType type = DataType::f32;  ///< f32, bf16 or u8
  int64_t size = 1;               ///< elements in a line, at most 2^32
  int64_t inner = 1;              ///< elements from one element of a line to the next
  int64_t kept = 1;               ///< the first so many of the sorted ones, at most `size`
  bool descending = false;
  bool places = false;  ///< the result holds where elements were (int64), not the elements
};

/// x: [outer, size, inner] -> y: [outer, kept, inner]. Stable: equal numbers stay in the order in which they
/// stand, in both directions; 0 and -0 are equal. A NaN counts as greater than any number, as in PyTorch.
class ULP_API Sort {
 public:
  /// Throws ulp::Error for another type.
  explicit Sort(const SortShape& shape);
  /// y is apart from x. `workspace` is 64-byte aligned, workspace_bytes() long. Neither allocates nor throws.
  void run(const void* x, void* y, int64_t outer, void* workspace, const Parallel& parallel) const;
  /// Bytes of scratch for so many workers.
  size_t workspace_bytes(int workers) const;

 private:
  template <typename T>
  void run_typed(const T* x, void* y, int64_t outer, void* workspace, const Parallel& parallel) const;
  template <typename T>
  void line(const T* x, void* y, uint64_t* keys) const;

  SortShape shape_;
};

}  // namespace ulp::kernels
