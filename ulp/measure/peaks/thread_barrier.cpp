#include "ulp/measure/peaks/thread_barrier.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::measure {

namespace {

using Clock = std::chrono::steady_clock;

struct alignas(64) Span {
  Clock::time_point begin, end;
};

}  // namespace

struct ThreadBarrier::State {
  std::vector<Span> spans;
  std::atomic<int64_t> piece{0};  ///< counts up; -1: the end
  std::atomic<int> ready{0}, done{0};
  const FunctionRef<void(int)>* work = nullptr;
  std::vector<std::thread> others;

  /// Waits for all, then works.
  void take(int worker) {
    ready.fetch_add(1);
    while (ready.load() < static_cast<int>(spans.size())) std::this_thread::yield();
    Span& span = spans[static_cast<size_t>(worker)];
    span.begin = Clock::now();
    (*work)(worker);
    span.end = Clock::now();
    done.fetch_add(1);
  }

  void serve(int worker) {
    for (int64_t seen = 0;;) {
      int64_t next = piece.load();
      while (next == seen) {
        std::this_thread::yield();
        next = piece.load();
      }
      if (next < 0) return;
      seen = next;
      take(worker);
    }
  }
};

ThreadBarrier::ThreadBarrier(int threads) : state_(std::make_unique<State>()) {
  state_->spans.resize(static_cast<size_t>(std::max(threads, 1)));
  try {
    for (int i = 1; i < this->threads(); ++i)
      state_->others.emplace_back([state = state_.get(), i] { state->serve(i); });
  } catch (const std::system_error& error) {
    state_->piece = -1;
    for (std::thread& other : state_->others) other.join();
    fail("measure.ThreadBarrier", "expected ", threads, " threads, got ", error.what());
  }
}

ThreadBarrier::~ThreadBarrier() {
  state_->piece = -1;
  for (std::thread& other : state_->others) other.join();
}

int ThreadBarrier::threads() const {
  return static_cast<int>(state_->spans.size());
}

double ThreadBarrier::seconds_of(int thread) const {
  const Span& span = state_->spans.at(static_cast<size_t>(thread));
  return std::chrono::duration<double>(span.end - span.begin).count();
}

double ThreadBarrier::time(FunctionRef<void(int)> work) {
  State& own = *state_;
  own.work = &work;
  own.ready = 0;
  own.done = 0;
  own.piece.fetch_add(1);
  own.take(0);
  while (own.done.load() < threads()) std::this_thread::yield();
  Clock::time_point begin = own.spans[0].begin, end = own.spans[0].end;
  for (const Span& span : own.spans) {
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace ulp::measure
