// Elements and rows that ids pick from a tensor: rows of a table, torch.gather and torch.index_select.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/formats/data_type.h"
#include "ulp/kernels/index/ids.h"

namespace ulp::kernels {

/// One dimension of a result as it lies in memory, and how far apart its elements are in the source and among
/// the ids; 0 repeats.
struct GatherDimension {
  int64_t size = 1;
  int64_t source = 0, ids = 0;
};

/// The source of a gather beside its dimensions.
struct GatherSource {
  int64_t element_size = 4;  ///< bytes
  int64_t item = 0;          ///< elements of the source for each item; 0: all items read one table
  int64_t row = 1;           ///< elements from one id's row to the next
  DataType id_type = DataType::i64;
  int64_t item_ids = 0;  ///< ids of each item; 0: all items read the same ones
  IdRange range{};
};

/// y[n][i0][i1]... = x[n * item + row(ids[n * item_ids + i0 * ids0 + ...]) * row + i0 * source0 + ...] for each
/// item n.
class ULP_API Gather {
 public:
  /// The outermost dimension first. Every address of a row in the range lies inside the source, and every one
  /// of an id inside the item's ids. Throws ulp::Error for elements of other than 1, 2, 4 or 8 bytes and for ids
  /// that are not i32 or i64.
  Gather(const GatherSource& source, const std::vector<GatherDimension>& dimensions);
  /// y is dense and apart from x. An id outside the range is reported, and row 0 stands in its place.
  void run(const void* x, const void* ids, void* y, int64_t batch, const Parallel& parallel,
           FirstBadId& bad) const;
  /// "copy" (rows of bytes) or "gather" (element by element).
  const char* kernel() const { return row_.size > 1 ? "copy" : "gather"; }

 private:
  template <typename T, typename Id>
  void run_typed(const T* x, const Id* ids, T* y, int64_t batch, const Parallel& parallel,
                 FirstBadId& bad) const;
  template <typename T, typename Id>
  void picks(const T* x, const Id* ids, T* y, int64_t begin, int64_t end, FirstBadId& bad) const;

  GatherSource source_;
  std::vector<GatherDimension> outer_;
  GatherDimension columns_, row_;  ///< the two inner loops; one id picks the whole row, which is dense in x
  int64_t picks_ = 1;              ///< ids that an item looks up
};

}  // namespace ulp::kernels
