#include "ulp/exchange/pt2/memory_limit.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>

#include "ulp/base/error.h"

namespace ulp::exchange::pt2 {

namespace {

/// LibTorch reports each allocation before anything is written to it.
class Guard final : public c10::MemoryReportingInfoBase {
 public:
  explicit Guard(int64_t most) : most_(most) {}
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void* pointer, int64_t bytes, size_t, size_t, c10::Device) override {
    if ((live_ += bytes) <= most_ || bytes <= 0) return;
    live_ -= bytes;
    c10::free_cpu(pointer);  // its owner never gets it
    fail_file("exchange.import_pt2", "expected tensors of at most ", most_,
              " bytes in one run, got more with one of ", bytes, " bytes");
  }

 private:
  const int64_t most_;
  std::atomic<int64_t> live_{0};
};

}  // namespace

struct MemoryLimit::State {
  explicit State(int64_t bytes) : guard(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Guard>(bytes)) {}
  c10::DebugInfoGuard guard;
};

MemoryLimit::MemoryLimit(int64_t bytes) : state_(std::make_unique<State>(bytes)) {}
MemoryLimit::~MemoryLimit() = default;

}  // namespace ulp::exchange::pt2
