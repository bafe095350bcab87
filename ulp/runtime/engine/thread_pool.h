// The runtime's own workers, for programs without another pool.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::runtime {

/// Whose threads a pool uses.
enum class PoolThreads {
  own,    ///< its own
  shared  ///< those that all such pools of the process have together
};

/// The calling thread and threads - 1 parked workers. Tasks are split into contiguous ranges, one per worker;
/// who is done with his own takes from those of others, so that run() never waits for a worker that has not
/// woken up. Several threads may call run(): they take turns. A task that calls run() again has it done on
/// its own worker. The first exception of a task reaches the caller when all other tasks have run.
///
/// Pools that share threads may run at the same time: each caller computes its own tasks, and idle threads
/// help one of them while fewer threads compute than there are cores; callers of pools of one thread count
/// among those that compute. There are as many threads as the largest of these pools asks for, and more where
/// several pools can use them and there are cores. Callers of different affinity masks share no threads. The
/// threads end with the last pool.
///
/// In a child made by fork() the calling thread does all tasks of a pool that was made before, if no run was
/// under way.
class ULP_API ThreadPool final : public Parallel {
 public:
  /// 0: usable_cores(). No thread is made for 1. Throws ulp::Error on a negative number and one above 1024
  /// (bad_option) and when the system gives no threads (unavailable).
  explicit ThreadPool(int threads = 0, PoolThreads whose = PoolThreads::own);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const override;
  void run(int64_t tasks, FunctionRef<void(int64_t task, int worker)> task) const override;

 private:
  friend class Context;
  /// The caller computes between runs, too, until leave(): its core is not free for others. For pools of one
  /// caller.
  void enter() const;
  void leave() const;
  /// How many threads compute in the runs that follow, the caller among them: 1 to workers().
  void limit(int computing) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::runtime
