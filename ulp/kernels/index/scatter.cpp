#include "ulp/kernels/index/scatter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ulp/base/error.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/common/split.h"

namespace ulp::kernels {
namespace {

/// Ids that are worth a task.
constexpr int64_t kTask = 16384;

/// A number as an element: of bf16 its bits.
template <typename T>
T element_of(float value) {
  if constexpr (sizeof(T) == sizeof(float)) return value;
  if constexpr (sizeof(T) == sizeof(uint16_t)) return float_to_bf16(value);
  return 0;  // codes are never written from a number
}

/// What stands where `held` stood.
float joined(ScatterMode mode, float held, float written) {
  switch (mode) {
    case ScatterMode::add:
      return held + written;
    case ScatterMode::multiply:
      return held * written;
    case ScatterMode::max:
      return held > written || std::isnan(held) ? held : written;
    case ScatterMode::min:
      return held < written || std::isnan(held) ? held : written;
    default:
      return written;
  }
}

}  // namespace

struct Scatter::Call {
  const void* ids;
  const void* source;
  float value;
  void* y;
  int64_t batch;
  const Parallel& parallel;
  FirstBadId& bad;
  FirstBadId* inexact;
};

Scatter::Scatter(const ScatterTarget& target, const std::vector<ScatterDimension>& dimensions, size_t along)
    : target_(target) {
  const DataType type = target.type;
  const bool known = type == DataType::f32 || type == DataType::bf16 || type == DataType::u8;
  if (!known || (target.mode != ScatterMode::replace && type != DataType::f32)) {
    fail("kernels.Scatter", "expected f32, bf16 or u8, and f32 to join, got ", to_string(type));
  }
  if (target.id_type != DataType::i32 && target.id_type != DataType::i64) {
    fail("kernels.Scatter", "expected ids of type i32 or i64, got ", to_string(target.id_type));
  }
  for (size_t d = 0; d < dimensions.size(); ++d) {
    (d < along ? outer_ : inner_).push_back(dimensions[d]);
    (d < along ? parts_ : part_ids_) *= dimensions[d].size;
  }
  if (inner_.empty()) inner_.push_back({});
}

/// The ids of one part, counted over all items, in order; the places of the loops are counted up as digits are.
template <typename T, typename Id>
void Scatter::part(const Call& call, int64_t part) const {
  const Id* ids = static_cast<const Id*>(call.ids) + part * part_ids_;
  const T* source = call.source ? static_cast<const T*>(call.source) + part * part_ids_ : nullptr;
  const T value = source ? T{} : element_of<T>(call.value);
  int64_t base = part / parts_ * target_.item, left = part % parts_;
  for (size_t d = outer_.size(); d-- > 0; left /= outer_[d].size) {
    base += left % outer_[d].size * outer_[d].target;
  }
  const ScatterDimension& columns = inner_.back();
  for (int64_t row = 0; row < part_ids_; row += columns.size) {
    int64_t to = base;
    left = row / columns.size;
    for (size_t d = inner_.size() - 1; d-- > 0; left /= inner_[d].size) {
      to += left % inner_[d].size * inner_[d].target;
    }
    for (int64_t c = 0; c < columns.size; ++c) {
      const int64_t id = ids[row + c];
      if (!target_.range.has(id)) {
        call.bad.report(part * part_ids_ + row + c);
        continue;
      }
      const int64_t place = to + c * columns.target + target_.range.row(id) * target_.row;
      T& y = static_cast<T*>(call.y)[place];
      const T written = source ? source[row + c] : value;
      if constexpr (std::is_same_v<T, float>) {
        y = joined(target_.mode, y, written);
        if (call.inexact != nullptr && may_be_inexact(y)) call.inexact->report(place);
      } else {
        y = written;
      }
    }
  }
}

template <typename T, typename Id>
void Scatter::run_typed(const Call& call) const {
  const int64_t total = call.batch * parts_, each = std::max<int64_t>(1, kTask / part_ids_);
  call.parallel.run((total + each - 1) / each, [&](int64_t task, int) {
    const int64_t end = std::min(total, (task + 1) * each);
    for (int64_t p = task * each; p < end; ++p) part<T, Id>(call, p);
  });
}

void Scatter::run(const void* x, const void* ids, const void* source, float value, void* y, int64_t batch,
                  const Parallel& parallel, FirstBadId& bad, FirstBadId* inexact) const {
  const int64_t size = element_bytes(target_.type);
  if (x != y) {
    split(batch * target_.item * size, parallel, [&](int64_t begin, int64_t count) {
      std::memcpy(static_cast<uint8_t*>(y) + begin, static_cast<const uint8_t*>(x) + begin,
                  static_cast<size_t>(count));
    });
  }
  const Call call{ids, source, value, y, batch, parallel, bad, inexact};
  const auto as = [&]<typename T>(T) {
    if (target_.id_type == DataType::i64) return run_typed<T, int64_t>(call);
    run_typed<T, int32_t>(call);
  };
  if (size == 1) return as(uint8_t{});
  if (size == 2) return as(uint16_t{});
  as(float{});
}

}  // namespace ulp::kernels
