// The threads of compiled steps; internal to the room.
#pragma once

#include "ulp/base/parallel.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace ulp::train::compiled {

/// Threads of the process's shared pool that compute with the rounding mode and the treatment of subnormal numbers of the
/// thread that calls run(): who computes a task changes no bit of it.
class StepThreads final : public Parallel {
 public:
  /// As runtime::ThreadPool.
  explicit StepThreads(int threads) : pool_(threads, runtime::PoolThreads::shared) {}
  int workers() const override { return pool_.workers(); }
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> task) const override;

 private:
  runtime::ThreadPool pool_;
};

}  // namespace ulp::train::compiled
