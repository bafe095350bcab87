// Integer ids that point into a table or a dimension: their range, and what a kernel says of one outside.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace ulp::kernels {

/// Ids into `size` rows, which is at least 1. With `from_end` one below 0 counts from the end: -1 is the last.
struct IdRange {
  int64_t size = 1;
  bool from_end = false;

  int64_t low() const { return from_end ? -size : 0; }
  bool has(int64_t id) const { return id >= low() && id < size; }
  /// The row of an id of the range.
  int64_t row(int64_t id) const { return id < 0 ? id + size : id; }
};

/// The place of the first id that lies outside its range. Threads may report at the same time.
class FirstBadId {
 public:
  void report(int64_t place) {
    int64_t held = place_.load(std::memory_order_relaxed);
    while (place < held && !place_.compare_exchange_weak(held, place, std::memory_order_relaxed)) {
    }
  }
  bool any() const { return element() != kNone; }
  /// Counted in elements from the first id of the call.
  int64_t element() const { return place_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> place_{kNone};
};

}  // namespace ulp::kernels
