#include "ulp/runtime/engine/worker_threads.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "ulp/base/cpu_limits.h"

namespace ulp::runtime {
namespace {

constexpr int64_t kSoon = 1'000'000;  // nanoseconds

int64_t steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What this thread wrote before is seen by whoever calls this later, or what that one wrote before is seen
/// here. Of two threads that each write one thing and then read the other's, at least one sees the write.
void order_writes_and_reads() {
#ifndef __SANITIZE_THREAD__  // knows no fences, and runs where exchanges are fences
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// The threads of a process by affinity mask.
struct PoolRegistry {
  const pid_t process = ::getpid();
  std::mutex lock;
  std::map<std::vector<bool>, std::weak_ptr<WorkerThreads>> pools;
};

/// Never destroyed: engines may end after all static objects have. A child of fork() makes one anew, for
/// another thread may have held the lock.
PoolRegistry& pool_registry() {
  static std::atomic<PoolRegistry*> current = nullptr;
  PoolRegistry* known = current.load(std::memory_order_acquire);
  if (known != nullptr && known->process == ::getpid()) return *known;
  auto made = std::make_unique<PoolRegistry>();
  if (current.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

}  // namespace

WorkerThreads::WorkerThreads() : process_(::getpid()) {}

std::shared_ptr<WorkerThreads> WorkerThreads::make() {
  return {new WorkerThreads(), [](const WorkerThreads* threads) {
            if (threads->are_here()) delete threads;
          }};
}

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard guard(lock_);
    stop_ = true;
  }
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<WorkerThreads> WorkerThreads::of_process() {
  PoolRegistry& registry = pool_registry();
  const std::lock_guard guard(registry.lock);
  std::erase_if(registry.pools, [](const auto& pool) { return pool.second.expired(); });
  std::weak_ptr<WorkerThreads>& known = registry.pools[affinity_mask()];
  std::shared_ptr<WorkerThreads> threads = known.lock();
  if (!threads) known = threads = make();
  return threads;
}

bool WorkerThreads::are_here() const {
  return process_ == ::getpid();
}

void WorkerThreads::add(PoolJob& job, int cores) {
  const std::lock_guard guard(lock_);
  if (cores_ == 0) cores_ = cores > 0 ? cores : usable_cores();
  const int64_t helpers = job.workers() - 1;
  const auto needed =
      static_cast<size_t>(std::max(helpers, std::min<int64_t>(wanted_ + helpers, cores_ - 1)));
  jobs_.reserve(jobs_.size() + 1);
  threads_.reserve(needed);
  while (threads_.size() < needed) {
    const size_t index = threads_.size();
    threads_.emplace_back([this, index] { serve(index); });
  }
  jobs_.push_back(&job);
  wanted_ += helpers;
}

void WorkerThreads::remove(PoolJob& job) {
  std::unique_lock lock(lock_);
  std::erase(jobs_, &job);
  wanted_ -= job.workers() - 1;
  job.close();
  left_.wait(lock, [&] { return job.helpers.load(std::memory_order_relaxed) == 0; });
}

bool WorkerThreads::crowded(const PoolJob& job, int more) const {
  const int computing = callers_.load(std::memory_order_relaxed) + helping_.load(std::memory_order_relaxed);
  return computing + more > std::max(cores_.load(std::memory_order_relaxed), job.workers());
}

/// Either whoever leaves the job or other callers sees its pieces, or it is seen here that there is room.
void WorkerThreads::call(const PoolJob& job, int64_t pieces) {
  order_writes_and_reads();
  const int64_t places =
      job.most_helpers.load(std::memory_order_relaxed) - job.helpers.load(std::memory_order_relaxed);
  if (places > 0 && !crowded(job, 1)) wake(std::min(places, pieces - 1));
}

bool WorkerThreads::too_soon() {
  const int64_t now = steady_nanoseconds();
  if (now - full_at_.load(std::memory_order_relaxed) >= kSoon) return false;
  if (now - woke_at_.load(std::memory_order_relaxed) < kSoon) return true;
  woke_at_.store(now, std::memory_order_relaxed);
  return false;
}

/// Whoever is about to sleep has counted itself before it looks at the signal for the last time: either it
/// sees the change, or it is seen here.
void WorkerThreads::wake(int64_t threads) {
  signal_.fetch_add(1);
  const int64_t asleep = sleeping_.load();
  if (asleep == 0 || too_soon()) return;
  if (threads >= asleep) return signal_.notify_all();
  for (int64_t i = 0; i < threads; ++i) signal_.notify_one();
}

void WorkerThreads::enter() {
  const int callers = callers_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (callers > 1 && callers >= cores_.load(std::memory_order_relaxed))
    full_at_.store(steady_nanoseconds(), std::memory_order_relaxed);
}

void WorkerThreads::leave() {
  const int callers = callers_.fetch_sub(1, std::memory_order_relaxed) - 1;
  if (callers <= 0 || callers + 1 != cores_.load(std::memory_order_relaxed)) return;
  order_writes_and_reads();
  wake(1);  // there is room for one now
}

WorkerThreads::Place WorkerThreads::take_place(size_t index) {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    PoolJob& job = *jobs_[(first_ + i) % jobs_.size()];
    const int helpers = job.workers() - 1;
    const int most = job.most_helpers.load(std::memory_order_relaxed);
    if (job.helpers.load(std::memory_order_relaxed) >= most || crowded(job, 1) || !job.has_pieces()) continue;
    // The same place as before, if it is free, for what lies in the cache.
    auto worker = static_cast<int>(index % static_cast<size_t>(helpers)) + 1;
    while (job.places[static_cast<size_t>(worker)]) worker = worker % helpers + 1;
    job.places[static_cast<size_t>(worker)] = true;
    job.helpers.fetch_add(1, std::memory_order_relaxed);
    helping_.fetch_add(1, std::memory_order_relaxed);
    first_ = (first_ + i + 1) % jobs_.size();
    return {&job, worker};
  }
  return {};
}

void WorkerThreads::give_back(const Place& place) {
  place.job->places[static_cast<size_t>(place.worker)] = false;
  helping_.fetch_sub(1, std::memory_order_relaxed);
  place.job->helpers.fetch_sub(1, std::memory_order_relaxed);
  order_writes_and_reads();  // before it looks for pieces again
  if (place.job->closing()) left_.notify_all();
}

/// One run after the other, until no other one comes soon or somebody else calls.
void WorkerThreads::stay(const Place& place, SpinWait& idle) {
  PoolJob& job = *place.job;
  while (true) {
    const uint32_t epoch = job.epoch(), seen = signal_.load(std::memory_order_acquire);
    if (job.helpers.load(std::memory_order_relaxed) > job.most_helpers.load(std::memory_order_relaxed))
      return;
    job.work(place.worker);
    if (job.closing() || crowded(job, 0)) return;
    const bool called =
        idle.spin([&] { return job.epoch() != epoch || signal_.load(std::memory_order_relaxed) != seen; });
    if (!called || job.epoch() == epoch) return;
  }
}

void WorkerThreads::serve(size_t index) {
  SpinWait idle;
  std::unique_lock lock(lock_);
  while (!stop_) {
    const uint32_t seen = signal_.load();
    const Place place = take_place(index);
    lock.unlock();
    if (place.job != nullptr) {
      stay(place, idle);
      lock.lock();
      give_back(place);
      continue;
    }
    sleeping_.fetch_add(1);
    signal_.wait(seen);
    sleeping_.fetch_sub(1);
    idle.woken();
    lock.lock();
  }
}

}  // namespace ulp::runtime
