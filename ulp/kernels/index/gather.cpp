#include "ulp/kernels/index/gather.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

/// Elements that are worth a task.
constexpr int64_t kTask = 16384;

/// Without dimensions of size 1, neighbours joined where they are one run of equal steps.
std::vector<GatherDimension> joined(const std::vector<GatherDimension>& dimensions) {
  std::vector<GatherDimension> out;
  for (const GatherDimension& next : dimensions) {
    if (next.size == 1) continue;
    const bool fits = !out.empty() && out.back().source == next.size * next.source &&
                      out.back().ids == next.size * next.ids;
    if (fits) {
      out.back() = {out.back().size * next.size, next.source, next.ids};
    } else {
      out.push_back(next);
    }
  }
  return out;
}

}  // namespace

Gather::Gather(const GatherSource& source, const std::vector<GatherDimension>& dimensions)
    : source_(source), outer_(joined(dimensions)) {
  const int64_t size = source.element_size;
  if (size != 1 && size != 2 && size != 4 && size != 8) {
    fail("kernels.Gather", "expected elements of 1, 2, 4 or 8 bytes, got ", size);
  }
  if (source.id_type != DataType::i32 && source.id_type != DataType::i64) {
    fail("kernels.Gather", "expected ids of type i32 or i64, got ", to_string(source.id_type));
  }
  columns_ = row_ = {};
  if (!outer_.empty() && outer_.back().ids == 0 && outer_.back().source == 1) {
    row_ = outer_.back();
    outer_.pop_back();
  }
  if (!outer_.empty()) {
    columns_ = outer_.back();
    outer_.pop_back();
  }
  picks_ = columns_.size;
  for (const GatherDimension& d : outer_) picks_ *= d.size;
}

/// Picks [begin, end), counted over all items; those of one run of columns at a time.
template <typename T, typename Id>
void Gather::picks(const T* x, const Id* ids, T* y, int64_t begin, int64_t end, FirstBadId& bad) const {
  for (int64_t at = begin; at < end;) {
    const int64_t item = at / picks_, pick = at % picks_, column = pick % columns_.size;
    int64_t from = item * source_.item, first = item * source_.item_ids, left = pick / columns_.size;
    for (size_t d = outer_.size(); d-- > 0; left /= outer_[d].size) {
      from += left % outer_[d].size * outer_[d].source;
      first += left % outer_[d].size * outer_[d].ids;
    }
    const int64_t last = std::min(columns_.size, column + end - at);
    T* to = y + at * row_.size;
    for (int64_t c = column; c < last; ++c, to += row_.size) {
      const int64_t place = first + c * columns_.ids;
      int64_t id = ids[place];
      if (!source_.range.has(id)) {
        bad.report(place);
        id = 0;
      }
      const T* row = x + from + c * columns_.source + source_.range.row(id) * source_.row;
      if (row_.size == 1) {
        *to = *row;
      } else {
        std::memcpy(to, row, static_cast<size_t>(row_.size) * sizeof(T));
      }
    }
    at += last - column;
  }
}

template <typename T, typename Id>
void Gather::run_typed(const T* x, const Id* ids, T* y, int64_t batch, const Parallel& parallel,
                       FirstBadId& bad) const {
  const int64_t total = batch * picks_, each = std::max<int64_t>(1, kTask / row_.size);
  if (parallel.workers() == 1 || total <= each) return picks(x, ids, y, 0, total, bad);
  parallel.run((total + each - 1) / each, [&](int64_t task, int) {
    picks(x, ids, y, task * each, std::min(total, (task + 1) * each), bad);
  });
}

void Gather::run(const void* x, const void* ids, void* y, int64_t batch, const Parallel& parallel,
                 FirstBadId& bad) const {
  const auto as = [&]<typename T>(T) {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (source_.id_type == DataType::i64) {
      return run_typed(from, static_cast<const int64_t*>(ids), to, batch, parallel, bad);
    }
    run_typed(from, static_cast<const int32_t*>(ids), to, batch, parallel, bad);
  };
  if (source_.element_size == 1) return as(uint8_t{});
  if (source_.element_size == 2) return as(uint16_t{});
  if (source_.element_size == 4) return as(uint32_t{});
  as(uint64_t{});
}

}  // namespace ulp::kernels
