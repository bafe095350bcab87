// Waiting for other threads: awake for as long as that has paid, then asleep.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace ulp::runtime {

/// Of one place where a thread waits again and again. Waits that are short are spent awake, twice as long as
/// they take on average. Where they are long, a neighbour that wants the core gets it soon: each long one
/// halves the time.
class SpinWait {
 public:
  /// Whether done() came true before it was time to sleep. If not, woken() is called when the wait is over.
  template <typename Done>
  bool spin(const Done& done) {
    if (done()) return true;
    begin_ = Clock::now();
    for (Clock::time_point now = begin_; now - begin_ < awake_; now = Clock::now()) {
      for (int i = 0; i < kLooks; ++i) {
        if (done()) {
          woken();
          return true;
        }
        relax();
      }
    }
    return false;
  }

  /// The wait of the last spin() is over.
  void woken() { learn(Clock::now() - begin_); }

  /// A wait took so long.
  void learn(std::chrono::nanoseconds wait) {
    if (wait <= 2 * kMost) {
      typical_ += (wait - typical_) / 4;
      awake_ = std::clamp(2 * typical_, kLeast, kMost);
    } else {
      awake_ = std::max(awake_ / 2, kLeast);
    }
  }

  std::chrono::nanoseconds awake() const { return awake_; }

  /// Falling asleep and being woken take several microseconds.
  static constexpr std::chrono::nanoseconds kLeast{2'000};
  /// Bridges the gap between two steps of a small network.
  static constexpr std::chrono::nanoseconds kMost{50'000};

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLooks = 16;  // between two of the clock

  static void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
  }

  Clock::time_point begin_;
  std::chrono::nanoseconds typical_ = kMost / 2, awake_ = kMost;
};

}  // namespace ulp::runtime
