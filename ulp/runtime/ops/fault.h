// What a step met while it ran and could not compute with: ids that another step made and that no one could
// check before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>

namespace ulp::runtime {

/// An integer outside of the range [low, high) of what a step can take or hold.
struct IdFault {
  enum class Kind : uint8_t {
    id,       ///< an index
    counted,  ///< a step that counts in f32 read it, and f32 does not hold it
    result    ///< a step that counts in f32 made it, and f32 may have rounded it
  };
  /// In place of a NaN, and of what 64 bits do not hold.
  static constexpr int64_t kNoInteger = std::numeric_limits<int64_t>::min();
  size_t step = 0;
  int64_t element = 0;  ///< of the ids, or of the result, counted over the whole batch
  int64_t id = 0, low = 0, high = 0;
  Kind kind = Kind::id;
};

/// The first fault of a run by step and element, whichever thread reports it.
class FaultSlot {
 public:
  void report(const IdFault& fault) {
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
    if (!any_ || std::tie(fault.step, fault.element) < std::tie(first_.step, first_.element)) first_ = fault;
    any_ = true;
    busy_.clear(std::memory_order_release);
  }
  /// Null where there was none; for when the run has ended.
  const IdFault* found() const { return any_ ? &first_ : nullptr; }

 private:
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  bool any_ = false;
  IdFault first_;
};

/// The slot of a run as one step sees it: which step it is, and with which item of the batch it begins.
struct StepFaults {
  FaultSlot& slot;
  size_t step = 0;
  int64_t first_item = 0;
};

}  // namespace ulp::runtime
