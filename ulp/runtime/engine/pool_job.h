// What the threads of a pool work on: the runs of one ThreadPool, one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/runtime/engine/spin_wait.h"

namespace ulp::runtime {

/// Which pieces of a run are still to be had, in one word: those from `begin` to `end`. The owner takes them
/// from the front, others from the back. Whoever exchanges the word has a piece of the run that goes on,
/// however long ago it was read: words are equal only where they say the same.
class PoolShare {
 public:
  void set(int64_t begin, int64_t end) {
    word_.store(packed(static_cast<uint64_t>(begin), static_cast<uint64_t>(end)), std::memory_order_release);
  }
  /// The number of a piece, or -1 where there is none left.
  int64_t take(bool own) {
    uint64_t word = word_.load(std::memory_order_acquire);
    while (true) {
      const uint64_t begin = word >> 32, end = word & 0xffffffffU;
      if (begin >= end) return -1;
      const uint64_t left = own ? packed(begin + 1, end) : packed(begin, end - 1);
      if (word_.compare_exchange_weak(word, left, std::memory_order_acq_rel, std::memory_order_acquire))
        return static_cast<int64_t>(own ? begin : end - 1);
    }
  }

  bool empty() const {
    const uint64_t word = word_.load(std::memory_order_acquire);
    return word >> 32 >= (word & 0xffffffffU);
  }

 private:
  static uint64_t packed(uint64_t begin, uint64_t end) { return begin << 32 | end; }
  alignas(64) std::atomic<uint64_t> word_{0};
};

/// The caller is worker 0; a thread that helps holds the place of another worker while it stays. A thread
/// that sleeps, or that the machine runs something else on, holds nobody up beyond its piece: the others do
/// the rest.
class PoolJob {
 public:
  using Task = FunctionRef<void(int64_t, int)>;

  explicit PoolJob(int workers);
  int workers() const { return workers_; }
  /// Some piece of the run that goes on is still to be had.
  bool has_pieces() const;

  // Of the caller.

  /// Begins a run; returns the number of its pieces.
  int64_t begin(int64_t tasks, const Task& task);
  /// Waits until all tasks are done, and throws what the first one that failed threw.
  void finish();

  // Of all.

  /// Does what is still to be had of a run: the worker's own pieces, then those of others.
  void work(int worker);
  /// Counts the runs.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  /// The job ends: who helps leaves.
  void close();
  bool closing() const { return closing_.load(std::memory_order_acquire); }

  // Of WorkerThreads, which locks them.

  std::vector<bool> places;      ///< of each worker, whether a thread holds it
  std::atomic<int> helpers = 0;  ///< threads that hold one, without the caller
  /// Of the caller: how many may.
  std::atomic<int> most_helpers;

 private:
  void do_piece(int64_t piece, int worker);

  const int workers_;
  std::vector<PoolShare> shares_;  ///< of each worker
  // Of a run; written before its shares are, read by those who have one of its pieces.
  const Task* task_ = nullptr;
  int64_t tasks_ = 0, piece_ = 1;  ///< tasks that are taken at a time
  SpinWait end_;
  std::atomic<bool> closing_{false};
  std::mutex failure_lock_;
  std::exception_ptr failure_;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<int32_t> pending_{0};  ///< pieces that are not done
};

/// The calling thread works for a job: a run of the same job inside stays on its worker.
class WorkerScope {
 public:
  WorkerScope(const PoolJob* job, int worker);
  ~WorkerScope();
  WorkerScope(const WorkerScope&) = delete;
  WorkerScope& operator=(const WorkerScope&) = delete;
  /// The worker of the calling thread in a job; -1 where it does not work for it.
  static int of(const PoolJob* job);

 private:
  const PoolJob* job_;
  int worker_;
  const WorkerScope* outer_;
};

}  // namespace ulp::runtime
