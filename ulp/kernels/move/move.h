// One strided copy: what permute, expand, slice, flip and the like do to memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::kernels {

/// One dimension of a result as it lies in memory, and how far apart its elements are in the source.
struct MoveDimension {
  int64_t size = 1;
  int64_t stride = 0;  ///< in elements; negative backwards, 0 repeats
};

/// The dimensions without those of size 1, neighbours joined where they are one run of equal steps.
ULP_API std::vector<MoveDimension> joined(const std::vector<MoveDimension>& dimensions);

/// y[n][i0][i1]... = x[n * source_item + offset + i0 * stride0 + i1 * stride1 ...] for each item n.
class ULP_API Move {
 public:
  /// Elements of 1, 2, 4 or 8 bytes; the outermost dimension first. Every address lies inside an item of
  /// `source_item` elements. Throws ulp::Error for another size of elements.
  Move(int64_t element_size, const std::vector<MoveDimension>& dimensions, int64_t offset,
       int64_t source_item);
  /// y is dense and apart from x.
  void run(const void* x, void* y, int64_t batch, const Parallel& parallel) const;
  /// "copy" (runs of bytes), "transpose" (in blocks) or "gather" (element by element).
  std::string kernel() const;

 private:
  enum class Kind : uint8_t { copy, transpose, gather };
  /// A dimension with its step in the result, too.
  struct Loop {
    int64_t size = 1, from = 0, to = 0;
  };
  template <typename T>
  void run_typed(const T* x, T* y, int64_t batch, const Parallel& parallel) const;
  template <typename T>
  void unit(const T* x, T* y) const;
  template <typename T>
  void units(const T* x, T* y, int64_t begin, int64_t end) const;

  int64_t element_size_, offset_, source_item_;
  int64_t units_ = 1, item_ = 1;  ///< how often the inner loops run, and elements, of one item
  Kind kind_ = Kind::copy;
  std::vector<Loop> outer_;
  Loop rows_, columns_;  ///< the two inner loops; the columns are dense in the result
};

}  // namespace ulp::kernels
