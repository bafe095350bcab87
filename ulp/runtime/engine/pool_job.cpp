#include "ulp/runtime/engine/pool_job.h"

#include <algorithm>
#include <utility>

#include "ulp/runtime/engine/piece_hook.h"

namespace ulp::runtime {
namespace {

/// Pieces for each worker, at most: each costs two exchanges of words that all workers write to.
constexpr int64_t kPieces = 64;

std::atomic<PieceHook> piece_hook = nullptr;

thread_local const WorkerScope* innermost_scope = nullptr;

}  // namespace

void set_piece_hook(PieceHook hook) {
  piece_hook.store(hook);
}

void call_piece_hook() {
  if (const PieceHook hook = piece_hook.load(std::memory_order_relaxed)) hook();
}

PoolJob::PoolJob(int workers)
    : places(static_cast<size_t>(workers)),
      most_helpers(workers - 1),
      workers_(workers),
      shares_(static_cast<size_t>(workers)) {}

bool PoolJob::has_pieces() const {
  return std::ranges::any_of(shares_, [](const PoolShare& share) { return !share.empty(); });
}

int64_t PoolJob::begin(int64_t tasks, const Task& task) {
  task_ = &task;
  tasks_ = tasks;
  piece_ = std::max<int64_t>(1, tasks / (kPieces * workers_));
  const int64_t pieces = (tasks + piece_ - 1) / piece_;
  pending_.store(static_cast<int32_t>(pieces), std::memory_order_relaxed);
  for (int w = 0; w < workers_; ++w)
    shares_[static_cast<size_t>(w)].set(pieces * w / workers_, pieces * (w + 1) / workers_);
  epoch_.fetch_add(1, std::memory_order_release);
  return pieces;
}

void PoolJob::finish() {
  const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (!end_.spin(done)) {
    for (int32_t left = pending_.load(std::memory_order_acquire); left != 0;
         left = pending_.load(std::memory_order_acquire))
      pending_.wait(left, std::memory_order_acquire);
    end_.woken();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void PoolJob::do_piece(int64_t piece, int worker) {
  call_piece_hook();
  try {
    const int64_t end = std::min(tasks_, (piece + 1) * piece_);
    for (int64_t i = piece * piece_; i < end; ++i) (*task_)(i, worker);
  } catch (...) {
    const std::lock_guard guard(failure_lock_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void PoolJob::work(int worker) {
  const WorkerScope scope(this, worker);
  for (int i = 0; i < workers_; ++i) {
    PoolShare& share = shares_[static_cast<size_t>((worker + i) % workers_)];
    for (int64_t piece = share.take(i == 0); piece >= 0; piece = share.take(i == 0)) {
      do_piece(piece, worker);
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    }
  }
}

void PoolJob::close() {
  closing_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
}

WorkerScope::WorkerScope(const PoolJob* job, int worker)
    : job_(job), worker_(worker), outer_(std::exchange(innermost_scope, this)) {}

WorkerScope::~WorkerScope() {
  innermost_scope = outer_;
}

int WorkerScope::of(const PoolJob* job) {
  for (const WorkerScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_)
    if (scope->job_ == job) return scope->worker_;
  return -1;
}

}  // namespace ulp::runtime
