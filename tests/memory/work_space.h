// What operators of LibTorch take while they run: no plan governs it, and it depends on the processor.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ulp::test {

/// While it lives: the most bytes that one operator of this thread took beside those that were there before
/// it or are there behind it.
class WorkSpace {
 public:
  WorkSpace() {
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  }
  ~WorkSpace() { at::removeCallback(handle_); }
  WorkSpace(const WorkSpace&) = delete;
  WorkSpace& operator=(const WorkSpace&) = delete;

  int64_t bytes() const { return counter_->most; }

 private:
  struct Call {
    int64_t before, peak;
  };
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      const std::lock_guard lock(mutex);
      live += size;
      if (!calls.empty()) calls.back().peak = std::max(calls.back().peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::mutex mutex;  // threads of an operator allocate, too
    std::vector<Call> calls;
    int64_t live = 0, most = 0;
  };

  static Counter* counter() {
    return static_cast<Counter*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
    Counter& state = *counter();
    const std::lock_guard lock(state.mutex);
    state.calls.push_back({state.live, state.live});
    return nullptr;
  }
  static void end(const at::RecordFunction&, at::ObserverContext*) {
    Counter& state = *counter();
    const std::lock_guard lock(state.mutex);
    const Call call = state.calls.back();
    state.calls.pop_back();
    if (!state.calls.empty()) state.calls.back().peak = std::max(state.calls.back().peak, call.peak);
    state.most = std::max(state.most, call.peak - std::max(call.before, state.live));
  }

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
  at::CallbackHandle handle_ = 0;
};

}  // namespace ulp::test
