#include "ulp/runtime/engine/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ulp/base/cpu_usage.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

using Task = FunctionRef<void(int64_t, int)>;

// Long enough to bridge the gap between two steps of a small network, short enough not to starve a neighbour.
constexpr int kSpins = 2000;
constexpr int kMaxThreads = 1024;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `value` is no longer `old`: spins a little, then sleeps in the kernel.
template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// The pool and worker this thread is working for, so that a nested run() stays on its worker.
thread_local const void* current_pool = nullptr;
thread_local int current_worker = 0;

class WorkerScope {
 public:
  WorkerScope(const void* pool, int worker)
      : pool_(std::exchange(current_pool, pool)), worker_(std::exchange(current_worker, worker)) {}
  ~WorkerScope() {
    current_pool = pool_;
    current_worker = worker_;
  }
  WorkerScope(const WorkerScope&) = delete;
  WorkerScope& operator=(const WorkerScope&) = delete;

 private:
  const void* pool_;
  int worker_;
};

}  // namespace

/// Which tasks of a run are still to be had, in one word: those from `begin` to `end`. The owner takes them
/// from the front, others from the back. Whoever exchanges the word has a task of the run that goes on,
/// however long ago it was read: words are equal only where they say the same.
class Share {
 public:
  void set(int64_t begin, int64_t end) {
    word_.store(packed(static_cast<uint64_t>(begin), static_cast<uint64_t>(end)), std::memory_order_release);
  }
  /// The number of a task, or -1 where there is none left.
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

 private:
  static uint64_t packed(uint64_t begin, uint64_t end) { return begin << 32 | end; }
  alignas(64) std::atomic<uint64_t> word_{0};
};

/// Groups of tasks for each worker, at most: each costs two exchanges of words that all workers write to.
constexpr int64_t kGroups = 64;

/// A thread that sleeps, or that the machine runs something else on, holds nobody up: the others do its
/// tasks.
struct ThreadPool::State {
  int workers = 1;
  std::vector<std::thread> threads;
  std::vector<Share> shares;  ///< of each worker
  std::mutex turn;            // one run() at a time

  // Of a run; written before its shares are, read by those who have one of its tasks.
  const Task* task = nullptr;
  int64_t tasks = 0, group = 1;  ///< tasks that are taken at a time
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int64_t> pending{0};  ///< groups of tasks that are not done
  std::mutex failure_lock;
  std::exception_ptr failure;

  void do_group(int64_t index, int worker) {
    try {
      const int64_t end = std::min(tasks, (index + 1) * group);
      for (int64_t i = index * group; i < end; ++i) (*task)(i, worker);
    } catch (...) {
      const std::lock_guard guard(failure_lock);
      if (!failure) failure = std::current_exception();
    }
  }

  /// Its own tasks, then those of others.
  void work(int worker) {
    const WorkerScope scope(this, worker);
    for (int i = 0; i < workers; ++i) {
      Share& share = shares[static_cast<size_t>((worker + i) % workers)];
      for (int64_t index = share.take(i == 0); index >= 0; index = share.take(i == 0)) {
        do_group(index, worker);
        if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
      }
    }
  }

  void publish() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void run(int64_t count, const Task& made) {
    task = &made;
    tasks = count;
    group = std::max<int64_t>(1, count / (kGroups * workers));
    const int64_t groups = (count + group - 1) / group;
    pending.store(groups, std::memory_order_relaxed);
    for (int w = 0; w < workers; ++w)
      shares[static_cast<size_t>(w)].set(groups * w / workers, groups * (w + 1) / workers);
    publish();
    work(0);
    for (int64_t left = pending.load(std::memory_order_acquire); left != 0;
         left = pending.load(std::memory_order_acquire)) {
      wait_for_change(pending, left);
    }
  }

  void loop(int worker) {
    uint32_t seen = 0;
    while (true) {
      wait_for_change(epoch, seen);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(worker);
    }
  }

  void shut_down() {
    stop.store(true, std::memory_order_release);
    publish();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 0 || threads > kMaxThreads) {
    fail("runtime.ThreadPool", "expected 0 (one per core) to ", kMaxThreads, " threads, got ", threads);
  }
  state_->workers = threads == 0 ? std::min(usable_cores(), kMaxThreads) : threads;
  state_->shares = std::vector<Share>(static_cast<size_t>(state_->workers));
  state_->threads.reserve(static_cast<size_t>(state_->workers - 1));
  try {
    for (int w = 1; w < state_->workers; ++w) {
      state_->threads.emplace_back([state = state_.get(), w] { state->loop(w); });
    }
  } catch (const std::system_error& error) {
    state_->shut_down();
    fail("runtime.ThreadPool", "could not start ", state_->workers - 1, " threads: ", error.what());
  }
}

ThreadPool::~ThreadPool() {
  state_->shut_down();
}

int ThreadPool::workers() const {
  return state_->workers;
}

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const {
  State& state = *state_;
  if (current_pool == &state) {
    const int worker = current_worker;
    for (int64_t i = 0; i < tasks; ++i) task(i, worker);
    return;
  }
  // Even for a single task: worker 0's scratch belongs to whoever holds the turn.
  const std::lock_guard guard(state.turn);
  if (state.workers == 1 || tasks <= 1) {
    const WorkerScope scope(&state, 0);
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  state.run(tasks, task);
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace ulp::runtime
