#include "ulp/runtime/engine/thread_pool.h"

#include <algorithm>
#include <mutex>
#include <system_error>

#include "ulp/base/cpu_limits.h"
#include "ulp/base/error.h"
#include "ulp/runtime/engine/pool_job.h"
#include "ulp/runtime/engine/worker_threads.h"

namespace ulp::runtime {
namespace {

constexpr int kMaxThreads = 1024;

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    fail("runtime.ThreadPool", "expected 0 (one per core) to ", kMaxThreads, " threads, got ", threads);
  return threads == 0 ? std::min(usable_cores(), kMaxThreads) : threads;
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : job(threads) {}

  PoolJob job;
  std::shared_ptr<WorkerThreads> others;  ///< null for one thread
  std::mutex turn;                        ///< one run() at a time
  bool entered = false;                   ///< the caller is counted by enter()
};

ThreadPool::ThreadPool(int threads, PoolThreads whose)
    : state_(std::make_unique<State>(checked_threads(threads))) {
  if (workers() == 1) return;
  state_->others =
      whose == PoolThreads::shared ? WorkerThreads::of_process() : std::make_shared<WorkerThreads>();
  try {
    state_->others->add(state_->job);
  } catch (const std::system_error& error) {
    fail("runtime.ThreadPool", "could not start ", workers() - 1, " threads: ", error.what());
  }
}

ThreadPool::~ThreadPool() {
  if (!state_->others) return;
  if (state_->others->are_here())
    state_->others->remove(state_->job);
  else
    static_cast<void>(state_.release());  // what the threads of the parent held cannot be given back
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

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const {
  State& state = *state_;
  if (const int worker = WorkerScope::of(&state.job); worker >= 0) {
    for (int64_t i = 0; i < tasks; ++i) task(i, worker);
    return;
  }
  // Even for a single task: worker 0's scratch belongs to whoever holds the turn.
  const std::lock_guard guard(state.turn);
  if (workers() == 1 || tasks <= 1) {
    const WorkerScope scope(&state.job, 0);
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  const bool counted = state.entered;
  if (!counted) state.others->enter();
  state.others->call(state.job, state.job.begin(tasks, task));
  state.job.work(0);
  if (!counted) state.others->leave();
  state.job.finish();
}

}  // namespace ulp::runtime
