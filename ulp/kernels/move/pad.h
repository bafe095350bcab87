// Rows, columns and channels around a tensor, of one number or of its own; negative ones are cut off.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace kernels {

/// The padding beyond the edge: a number, the elements mirrored at the edge, the edge itself, or the elements
/// from the other end.
enum class PadMode : uint8_t { constant, reflect, replicate, circular };

/// One dimension of the source as it lies in memory, and how much is added on both sides.
struct PadDimension {
  int64_t size = 1, before = 0, after = 0;
};

/// Copies items into larger or smaller ones.
class ULP_API Pad {
 public:
  /// Elements of 1, 2 or 4 bytes; `fill` holds the bits of the number in its lowest bytes. The outermost
  /// dimension first. Throws ulp::Error where a mode needs more elements than a dimension has: reflect adds
  /// less than its size, circular at most its size.
  Pad(int64_t element_size, const std::vector<PadDimension>& dimensions, PadMode mode, uint32_t fill);
  /// y is dense and apart from x.
  void run(const void* x, void* y, int64_t batch, const Parallel& parallel) const;

 private:
  /// A piece of the innermost dimension that changes: elements from `from` on, or the number where it is -1.
  struct Segment {
    int64_t from, to, count;
  };
  template <typename T>
  void run_typed(const T* x, T* y, int64_t batch, const Parallel& parallel) const;
  template <typename T>
  void row(const T* x, T* y) const;
  int64_t source_row(int64_t row) const;

  int64_t element_size_;
  uint32_t fill_;
  int64_t run_ = 1;                         ///< elements that stay together
  int64_t in_row_ = 1, out_row_ = 1;        ///< elements of a row of segments
  int64_t in_rows_ = 1, out_rows_ = 1;      ///< of an item
  std::vector<std::vector<int64_t>> from_;  ///< of the outer dimensions: the source of each index, or -1
  std::vector<int64_t> outer_;              ///< their sizes in the source
  std::vector<Segment> segments_;
};

/// The source of index `i` of a padded dimension; -1 for the number.
ULP_API int64_t pad_source(const PadDimension& dimension, PadMode mode, int64_t i);

/// Whether the mode can pad this dimension, and something is left of it.
ULP_API bool can_pad(const PadDimension& dimension, PadMode mode);

}  // namespace kernels

/// The words of engine files.
template <>
struct EnumNames<kernels::PadMode> {
  using enum kernels::PadMode;
  static constexpr std::array<Word<kernels::PadMode>, 4> list = {
      {{constant, "constant"}, {reflect, "reflect"}, {replicate, "replicate"}, {circular, "circular"}}};
};

}  // namespace ulp
