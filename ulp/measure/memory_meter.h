// Counts the bytes of live tensors as LibTorch's CPU allocator reports them: exact and repeatable, unlike
// resident memory.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/export.h"

namespace ulp::measure {

/// While it lives, allocations of this thread (and of the threads that LibTorch starts work on for it) are
/// counted. Meters do not nest with LibTorch's own profiler.
class ULP_API MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// Bytes allocated since construction and not yet freed; may be negative when older tensors were freed.
  int64_t live_bytes() const;
  /// The largest live_bytes() so far.
  int64_t peak_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::measure
