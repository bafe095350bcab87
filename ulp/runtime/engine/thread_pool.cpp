#include "ulp/runtime/engine/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
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

int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return kMaxThreads;
  const double cores = std::strtod(quota.c_str(), nullptr) / period;
  return cores >= 1 ? static_cast<int>(std::min<double>(cores + 0.5, kMaxThreads)) : 1;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = ::sched_getaffinity(0, sizeof(set), &set) == 0
                          ? CPU_COUNT(&set)
                          : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(std::min(allowed, quota_cores()), 1, kMaxThreads);
}

struct ThreadPool::State {
  int workers = 1;
  std::vector<std::thread> threads;
  std::mutex turn;  // one run() at a time

  // Written by the caller before `epoch` moves, read by workers after they see it move.
  const Task* task = nullptr;
  int64_t tasks = 0;
  bool stop = false;
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<uint32_t> pending{0};
  std::mutex failure_lock;
  std::exception_ptr failure;

  void work(int worker) {
    const WorkerScope scope(this, worker);
    try {
      const int64_t end = tasks * (worker + 1) / workers;
      for (int64_t i = tasks * worker / workers; i < end; ++i) (*task)(i, worker);
    } catch (...) {
      const std::lock_guard guard(failure_lock);
      if (!failure) failure = std::current_exception();
    }
  }

  void publish() {
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void loop(int worker) {
    uint32_t seen = 0;
    while (true) {
      wait_for_change(epoch, seen);
      ++seen;  // the caller waits for every worker before it moves the epoch again
      if (stop) return;
      work(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void shut_down() {
    stop = true;
    publish();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 0 || threads > kMaxThreads) {
    fail("runtime.ThreadPool", "expected 0 (one per core) to ", kMaxThreads, " threads, got ", threads);
  }
  state_->workers = threads == 0 ? usable_cores() : threads;
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
  state.task = &task;
  state.tasks = tasks;
  state.pending.store(static_cast<uint32_t>(state.workers - 1), std::memory_order_relaxed);
  state.publish();
  state.work(0);
  for (uint32_t left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    wait_for_change(state.pending, left);
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace ulp::runtime
