#include "ulp/measure/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>

namespace ulp::measure {

namespace {

class Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device) override {
    const int64_t live = live_.fetch_add(alloc_size) + alloc_size;
    int64_t peak = peak_.load();
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t live() const { return live_.load(); }
  int64_t peak() const { return peak_.load(); }

 private:
  std::atomic<int64_t> live_{0}, peak_{0};
};

}  // namespace

struct MemoryMeter::State {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

MemoryMeter::MemoryMeter() : state_(std::make_unique<State>()) {}
MemoryMeter::~MemoryMeter() = default;
int64_t MemoryMeter::live_bytes() const {
  return state_->counter->live();
}
int64_t MemoryMeter::peak_bytes() const {
  return state_->counter->peak();
}

}  // namespace ulp::measure
