#include "ulp/kernels/move/move.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

/// Elements that are worth a task.
constexpr int64_t kTask = 16384;
/// A transposition of more than this is several units.
constexpr int64_t kUnit = 65536;

typedef uint32_t Four __attribute__((vector_size(16)));
/// As it may lie in memory: a variable of this type would promise less than the compiler takes it to be.
typedef uint32_t StoredFour __attribute__((vector_size(16), aligned(4), may_alias));

/// Lanes of a and, counted on, of b.
#if __has_builtin(__builtin_shufflevector)
#define ULP_LANES(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC 11
#define ULP_LANES(a, b, ...) __builtin_shuffle(a, b, Four{__VA_ARGS__})
#endif

/// Four rows of four.
inline void transpose_four(const uint32_t* x, int64_t step, uint32_t* y, int64_t y_step) {
  const auto load = [&](int64_t c) -> Four { return *reinterpret_cast<const StoredFour*>(x + c * step); };
  const auto store = [&](int64_t r, Four v) { *reinterpret_cast<StoredFour*>(y + r * y_step) = v; };
  const Four a = load(0), b = load(1), c = load(2), d = load(3);
  const Four ab = ULP_LANES(a, b, 0, 4, 1, 5), cd = ULP_LANES(c, d, 0, 4, 1, 5);
  const Four ab_high = ULP_LANES(a, b, 2, 6, 3, 7), cd_high = ULP_LANES(c, d, 2, 6, 3, 7);
  store(0, ULP_LANES(ab, cd, 0, 1, 4, 5));
  store(1, ULP_LANES(ab, cd, 2, 3, 6, 7));
  store(2, ULP_LANES(ab_high, cd_high, 0, 1, 4, 5));
  store(3, ULP_LANES(ab_high, cd_high, 2, 3, 6, 7));
}

/// Blocks of a transposition: both sides stay in the first cache.
constexpr int64_t kBlock = 32;

/// y[r][c] = x[c * step + r] in a block.
template <typename T>
void transpose_block(const T* x, int64_t step, T* y, int64_t y_step, int64_t rows, int64_t columns) {
  int64_t r = 0, fours = 0;
  if constexpr (sizeof(T) == 4) {
    fours = columns / 4 * 4;
    for (; r + 4 <= rows; r += 4) {
      for (int64_t c = 0; c < fours; c += 4)
        transpose_four(x + c * step + r, step, y + r * y_step + c, y_step);
      for (int64_t c = fours; c < columns; ++c) {
        for (int64_t i = r; i < r + 4; ++i) y[i * y_step + c] = x[c * step + i];
      }
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[r * y_step + c] = x[c * step + r];
  }
}

/// The same for a whole matrix.
template <typename T>
void transpose(const T* x, int64_t step, T* y, int64_t y_step, int64_t rows, int64_t columns) {
  for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
    const int64_t c1 = std::min(columns, c0 + kBlock);
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
      const int64_t r1 = std::min(rows, r0 + kBlock);
      transpose_block(x + c0 * step + r0, step, y + r0 * y_step + c0, y_step, r1 - r0, c1 - c0);
    }
  }
}

template <typename T>
void gather_row(const T* x, int64_t step, T* y, int64_t n) {
  if (step == 0) {
    std::fill(y, y + n, *x);
  } else if (step == -1) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[-i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * step];
  }
}

template <typename T>
void copy_row(const T* x, T* y, int64_t n) {
  if (n >= 16) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
  }
}

}  // namespace

std::vector<MoveDimension> joined(const std::vector<MoveDimension>& dimensions) {
  std::vector<MoveDimension> out;
  for (const MoveDimension& next : dimensions) {
    if (next.size == 1) continue;
    if (!out.empty() && out.back().stride == next.size * next.stride) {
      out.back() = {out.back().size * next.size, next.stride};
    } else {
      out.push_back(next);
    }
  }
  return out;
}

Move::Move(int64_t element_size, const std::vector<MoveDimension>& dimensions, int64_t offset,
           int64_t source_item)
    : element_size_(element_size), offset_(offset), source_item_(source_item) {
  if (element_size != 1 && element_size != 2 && element_size != 4 && element_size != 8) {
    fail("kernels.Move", "expected elements of 1, 2, 4 or 8 bytes, got ", element_size);
  }
  for (const MoveDimension& d : joined(dimensions)) outer_.push_back({d.size, d.stride, 0});
  for (size_t d = outer_.size(); d-- > 0;) {
    outer_[d].to = item_;
    item_ *= outer_[d].size;
  }
  columns_ = {1, 1, 1};
  rows_ = {1, 0, 0};
  if (!outer_.empty()) {
    columns_ = outer_.back();
    outer_.pop_back();
  }
  const auto dense = std::ranges::find(outer_, 1, &Loop::from);
  const bool turns = dense != outer_.end() && columns_.from != 0 && columns_.from != -1;
  if (columns_.from != 1) kind_ = turns ? Kind::transpose : Kind::gather;
  if (kind_ == Kind::transpose) {
    rows_ = *dense;
    outer_.erase(dense);
    // A large one is cut along its rows, so that threads can share it.
    const int64_t most = std::max<int64_t>(32, kUnit / columns_.size);
    for (int64_t parts = rows_.size / most; parts > 1; --parts) {
      if (rows_.size % parts != 0) continue;
      rows_.size /= parts;
      outer_.push_back({parts, rows_.size, rows_.size * rows_.to});
      break;
    }
  } else if (!outer_.empty()) {
    rows_ = outer_.back();
    outer_.pop_back();
  }
  for (const Loop& loop : outer_) units_ *= loop.size;
}

std::string Move::kernel() const {
  return kind_ == Kind::copy ? "copy" : kind_ == Kind::transpose ? "transpose" : "gather";
}

template <typename T>
void Move::unit(const T* x, T* y) const {
  if (kind_ == Kind::transpose) {
    transpose(x, columns_.from, y, rows_.to, rows_.size, columns_.size);
    return;
  }
  for (int64_t row = 0; row < rows_.size; ++row) {
    if (kind_ == Kind::copy) {
      copy_row(x + row * rows_.from, y + row * rows_.to, columns_.size);
    } else {
      gather_row(x + row * rows_.from, columns_.from, y + row * rows_.to, columns_.size);
    }
  }
}

/// Units [begin, end), counted over all items; the places of the outer loops are counted up as digits are.
template <typename T>
void Move::units(const T* x, T* y, int64_t begin, int64_t end) const {
  for (int64_t at = begin; at < end;) {
    const int64_t item = at / units_, last = std::min(end, (item + 1) * units_);
    int64_t rest = at % units_;
    const T* from = x + item * source_item_ + offset_;
    T* to = y + item * item_;
    const size_t depth = outer_.size();
    if (depth == 0) {
      unit(from, to);
      ++at;
      continue;
    }
    const Loop& inner = outer_[depth - 1];
    while (at < last) {
      int64_t from_at = 0, to_at = 0, left = rest;
      for (size_t d = depth; d-- > 0; left /= outer_[d].size) {
        from_at += left % outer_[d].size * outer_[d].from;
        to_at += left % outer_[d].size * outer_[d].to;
      }
      const int64_t count = std::min(last - at, inner.size - rest % inner.size);
      for (int64_t i = 0; i < count; ++i) unit(from + from_at + i * inner.from, to + to_at + i * inner.to);
      at += count;
      rest += count;
    }
  }
}

template <typename T>
void Move::run_typed(const T* x, T* y, int64_t batch, const Parallel& parallel) const {
  const int64_t total = batch * units_;
  const int64_t each = std::max<int64_t>(1, kTask / std::max<int64_t>(1, item_ / units_));
  if (parallel.workers() == 1 || total <= each) return units(x, y, 0, total);
  parallel.run((total + each - 1) / each,
               [&](int64_t task, int) { units(x, y, task * each, std::min(total, (task + 1) * each)); });
}

void Move::run(const void* x, void* y, int64_t batch, const Parallel& parallel) const {
  const auto as = [&]<typename T>(T) {
    run_typed(static_cast<const T*>(x), static_cast<T*>(y), batch, parallel);
  };
  if (element_size_ == 1) return as(uint8_t{});
  if (element_size_ == 2) return as(uint16_t{});
  if (element_size_ == 4) return as(uint32_t{});
  as(uint64_t{});
}

}  // namespace ulp::kernels
