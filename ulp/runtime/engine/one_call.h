// A context takes one call at a time.
#pragma once

#include <atomic>

namespace ulp::runtime {

/// Holds the flag while one call works with what it stands for.
class OneCall {
 public:
  /// Calls refuse(), which throws, where another call holds it.
  template <typename Refuse>
  OneCall(std::atomic_flag& busy, const Refuse& refuse) : busy_(busy) {
    if (busy_.test_and_set(std::memory_order_acquire)) refuse();
  }
  ~OneCall() { busy_.clear(std::memory_order_release); }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  std::atomic_flag& busy_;
};

}  // namespace ulp::runtime
