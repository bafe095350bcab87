#include "ulp/kernels/move/pad.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::kernels {

int64_t pad_source(const PadDimension& d, PadMode mode, int64_t i) {
  const int64_t at = i - d.before;
  if (at >= 0 && at < d.size) return at;
  switch (mode) {
    case PadMode::reflect:
      return at < 0 ? -at : 2 * (d.size - 1) - at;
    case PadMode::replicate:
      return at < 0 ? 0 : d.size - 1;
    case PadMode::circular:
      return at < 0 ? at + d.size : at - d.size;
    default:
      return -1;
  }
}

bool can_pad(const PadDimension& d, PadMode mode) {
  if (d.size + d.before + d.after < 1) return false;
  const int64_t most = std::max(d.before, d.after);
  if (mode == PadMode::reflect) return most < d.size;
  if (mode == PadMode::circular) return most <= d.size;
  return true;
}

Pad::Pad(int64_t element_size, const std::vector<PadDimension>& dimensions, PadMode mode, uint32_t fill)
    : element_size_(element_size), fill_(fill) {
  if (element_size != 1 && element_size != 2 && element_size != 4) {
    fail("kernels.Pad", "expected elements of 1, 2 or 4 bytes, got ", element_size);
  }
  for (const PadDimension& d : dimensions) {
    if (!can_pad(d, mode)) {
      fail("kernels.Pad", "expected '", enum_name(mode), "' to add less than ", d.size, " has, got ",
           d.before, " and ", d.after);
    }
  }
  size_t inner = dimensions.size();
  while (inner > 0 && dimensions[inner - 1].before == 0 && dimensions[inner - 1].after == 0) {
    run_ *= dimensions[--inner].size;
  }
  PadDimension last{1, 0, 0};
  if (inner > 0) last = dimensions[--inner];
  const int64_t width = last.size + last.before + last.after;
  in_row_ = last.size * run_;
  out_row_ = width * run_;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t from = pad_source(last, mode, i);
    Segment* before = segments_.empty() ? nullptr : &segments_.back();
    const bool goes_on =
        before != nullptr &&
        (from < 0 ? before->from < 0 : before->from >= 0 && before->from + before->count == from * run_);
    if (goes_on) {
      before->count += run_;
    } else {
      segments_.push_back({from < 0 ? -1 : from * run_, i * run_, run_});
    }
  }
  for (size_t d = 0; d < inner; ++d) {
    const PadDimension& outer = dimensions[d];
    std::vector<int64_t>& table = from_.emplace_back();
    for (int64_t i = 0; i < outer.size + outer.before + outer.after; ++i) {
      table.push_back(pad_source(outer, mode, i));
    }
    outer_.push_back(outer.size);
    in_rows_ *= outer.size;
    out_rows_ *= static_cast<int64_t>(table.size());
  }
}

/// -1 for a row of the number alone.
int64_t Pad::source_row(int64_t row) const {
  int64_t from = 0, step = 1;
  for (size_t d = from_.size(); d-- > 0;) {
    const auto size = static_cast<int64_t>(from_[d].size());
    const int64_t at = from_[d][static_cast<size_t>(row % size)];
    if (at < 0) return -1;
    from += at * step;
    step *= outer_[d];
    row /= size;
  }
  return from;
}

template <typename T>
void Pad::row(const T* x, T* y) const {
  for (const Segment& s : segments_) {
    if (x == nullptr || s.from < 0) {
      std::fill(y + s.to, y + s.to + s.count, static_cast<T>(fill_));
    } else {
      std::memcpy(y + s.to, x + s.from, static_cast<size_t>(s.count) * sizeof(T));
    }
  }
}

template <typename T>
void Pad::run_typed(const T* x, T* y, int64_t batch, const Parallel& parallel) const {
  constexpr int64_t kTask = 16384;
  const int64_t total = batch * out_rows_, each = std::max<int64_t>(1, kTask / out_row_);
  parallel.run((total + each - 1) / each, [&](int64_t task, int) {
    for (int64_t r = task * each; r < std::min(total, (task + 1) * each); ++r) {
      const int64_t from = source_row(r % out_rows_);
      const T* source = from < 0 ? nullptr : x + (r / out_rows_ * in_rows_ + from) * in_row_;
      row(source, y + r * out_row_);
    }
  });
}

void Pad::run(const void* x, void* y, int64_t batch, const Parallel& parallel) const {
  const auto as = [&]<typename T>(T) {
    run_typed(static_cast<const T*>(x), static_cast<T*>(y), batch, parallel);
  };
  if (element_size_ == 1) return as(uint8_t{});
  if (element_size_ == 2) return as(uint16_t{});
  as(uint32_t{});
}

}  // namespace ulp::kernels
