#include "ulp/runtime/engine/thread_pool.h"

#include <algorithm>
#include <mutex>
#include <system_error>

#include "ulp/base/cpu_limits.h"
#include "ulp/base/error.h"
#include "ulp/runtime/engine/piece_hook.h"
#include "ulp/runtime/engine/pool_job.h"
#include "ulp/runtime/engine/worker_threads.h"

namespace ulp::runtime {
namespace {

constexpr int kMaxThreads = 1024;

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    fail(ErrorCode::bad_option, "runtime.ThreadPool", "expected 0 (one per core) to ", kMaxThreads,
         " threads, got ", threads);
  return threads == 0 ? std::min(usable_cores(), kMaxThreads) : threads;
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : job(threads) {}

  PoolJob job;
  std::shared_ptr<WorkerThreads> others;  ///< null for one thread that shares with nobody
  std::mutex turn;                        ///< one run() at a time
  bool entered = false;                   ///< the caller is counted by enter()

  /// The caller of a run counts as one that computes, once.
  class Computing {
   public:
    explicit Computing(const State& state) : others_(state.entered ? nullptr : state.others.get()) {
      if (others_ != nullptr) others_->enter();
    }
    ~Computing() {
      if (others_ != nullptr) others_->leave();
    }
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

   private:
    WorkerThreads* others_;
  };
};

ThreadPool::ThreadPool(int threads, PoolThreads whose)
    : state_(std::make_unique<State>(checked_threads(threads))) {
  const bool shared = whose == PoolThreads::shared;
  if (workers() == 1 && !shared) return;
  state_->others = shared ? WorkerThreads::of_process() : WorkerThreads::make();
  if (workers() == 1) return;  // nobody helps it, but its core is not free for others
  try {
    state_->others->add(state_->job, threads == 0 ? workers() : 0);
  } catch (const std::system_error& error) {
    fail(ErrorCode::unavailable, "runtime.ThreadPool", "could not start ", workers() - 1,
         " threads: ", error.what());
  }
}

ThreadPool::~ThreadPool() {
  if (workers() > 1 && state_->others->are_here()) state_->others->remove(state_->job);
}

int ThreadPool::workers() const {
  return state_->job.workers();
}

void ThreadPool::enter() const {
  if (!state_->others) return;
  state_->others->enter();
  state_->entered = true;
}

void ThreadPool::leave() const {
  if (!state_->others) return;
  state_->entered = false;
  state_->others->leave();
}

void ThreadPool::limit(int computing) const {
  state_->job.most_helpers.store(computing - 1, std::memory_order_relaxed);
}

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const {
  State& state = *state_;
  if (const int worker = WorkerScope::of(&state.job); worker >= 0) {
    for (int64_t i = 0; i < tasks; ++i) task(i, worker);
    return;
  }
  // Even for a single task: worker 0's scratch belongs to whoever holds the turn.
  const std::lock_guard guard(state.turn);
  if (workers() == 1 || tasks <= 1) {
    const State::Computing computing(state);
    const WorkerScope scope(&state.job, 0);
    call_piece_hook();
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  {
    const State::Computing computing(state);
    state.others->call(state.job, state.job.begin(tasks, task));
    state.job.work(0);
  }
  state.job.finish();
}

}  // namespace ulp::runtime
