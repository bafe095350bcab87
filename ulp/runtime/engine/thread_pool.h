// The runtime's own workers, for programs without another pool.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::runtime {

/// The calling thread and threads - 1 parked workers. Tasks are split into contiguous ranges, one per worker;
/// who is done with his own takes from those of others, so that run() never waits for a worker that has not
/// woken up. Several threads may call run(): they take turns. A task that calls run() again has it done on
/// its own worker. The first exception of a task reaches the caller when all other tasks have run. Does not
/// survive fork().
class ULP_API ThreadPool final : public Parallel {
 public:
  /// 0: usable_cores(). No thread is made for 1. Throws ulp::Error on a negative number or when the system
  /// refuses.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const override;
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> task) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::runtime
