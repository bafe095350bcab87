// Threads that begin a piece of work at the same moment, for measurements of the whole machine.
#pragma once

#include <memory>

#include "ulp/base/parallel.h"

namespace ulp::measure {

/// The calling thread and others that wait, spinning, for the next piece: make one for a measurement only.
class ThreadBarrier {
 public:
  /// Throws ulp::Error where the system gives no thread.
  explicit ThreadBarrier(int threads);
  ~ThreadBarrier();
  ThreadBarrier(const ThreadBarrier&) = delete;
  ThreadBarrier& operator=(const ThreadBarrier&) = delete;

  int threads() const;
  /// Calls work(i) once on each thread, i from 0. Returns the seconds from the first one's start to the last
  /// one's end.
  double time(FunctionRef<void(int)> work);
  /// Seconds of one thread in the last piece.
  double seconds_of(int thread) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::measure
