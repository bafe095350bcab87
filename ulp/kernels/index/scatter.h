// Elements written to places that ids give: torch.scatter, scatter_add and scatter_reduce.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/kernels/index/ids.h"

namespace ulp {
namespace kernels {

/// The reduction with the element that is there: the last one written stands, all are added to it or
/// multiplied with it, or the largest or smallest of all stands; a NaN is both.
enum class ScatterMode : uint8_t { replace, add, multiply, max, min };

/// One dimension of the ids, which are dense, and how far apart its elements are in the result; 0 along the
/// dimension that the ids point into.
struct ScatterDimension {
  int64_t size = 1;
  int64_t target = 0;
};

/// Where a scatter writes.
struct ScatterTarget {
  DataType type = DataType::f32;  ///< f32, bf16 or u8; but for replace: f32
  ScatterMode mode = ScatterMode::replace;
  int64_t item = 1;  ///< elements of the result for each item
  int64_t row = 1;   ///< elements from one id's place to the next
  DataType id_type = DataType::i64;
  IdRange range{};
};

/// y = x, then y[n * item + row(ids[i0][i1]...) * row + i0 * target0 + ...] = source[i0][i1]... or what the mode makes of
/// both, for each item n of ids, in order of i0, i1, ...
class ULP_API Scatter {
 public:
  /// The outermost dimension first; `along`: how many are outside of the one that the ids point into, along
  /// which no two ids give one place. Every address of a row in the range lies inside the item. Throws ulp::Error
  /// for other types.
  Scatter(const ScatterTarget& target, const std::vector<ScatterDimension>& dimensions, size_t along);
  /// `source`: as many elements as ids, of the result's type, or null for `value` everywhere. y may be x, and
  /// is apart from the others. An id outside the range is reported, and nothing is written for it. `inexact`,
  /// where it is not null, is told the element of y at which two f32 came to a magnitude of 2^24 or more:
  /// integers that may be rounded.
  void run(const void* x, const void* ids, const void* source, float value, void* y, int64_t batch,
           const Parallel& parallel, FirstBadId& bad, FirstBadId* inexact = nullptr) const;

 private:
  struct Call;
  template <typename T, typename Id>
  void run_typed(const Call& call) const;
  template <typename T, typename Id>
  void part(const Call& call, int64_t part) const;

  ScatterTarget target_;
  std::vector<ScatterDimension> outer_, inner_;
  int64_t parts_ = 1, part_ids_ = 1;  ///< of an item: runs of the outer loops, and ids of each
};

}  // namespace kernels

/// The words of engine files.
template <>
struct EnumNames<kernels::ScatterMode> {
  using enum kernels::ScatterMode;
  static constexpr std::array<Word<kernels::ScatterMode>, 5> list = {
      {{replace, "replace"}, {add, "add"}, {multiply, "multiply"}, {max, "max"}, {min, "min"}}};
};

}  // namespace ulp
