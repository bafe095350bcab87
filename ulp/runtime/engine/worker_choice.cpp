#include "ulp/runtime/engine/worker_choice.h"

#include <algorithm>

namespace ulp::runtime {
namespace {

// A window averages over the scheduler's slices of some 3 ms.
constexpr double kWindow = 20e-3, kLongWindow = 60e-3;  // seconds
constexpr int kRuns = 3;
// Above what clocks and caches change on a quiet machine.
constexpr double kDisturbed = 1.25;
// Threads that wait for each other on a quiet machine spin, so they use their cores.
constexpr double kUsed = 0.75;
// One thread fewer has to pay; one more is taken where it costs nothing.
constexpr double kFewerPay = 0.97;
// The quiet time is forgotten slowly: a processor that has grown hot stays slower.
constexpr double kForgets = 1.002;
constexpr int kPause = 8, kLongestPause = 32;

}  // namespace

void WorkerChoice::ran(double seconds) {
  if (most_ == 1) return;
  sum_ += seconds;
  ++runs_;
  if (sum_ < kWindow || (runs_ < kRuns && sum_ < kLongWindow)) return;
  const double mean = sum_ / runs_;
  const bool others = disturbed(mean);
  sum_ = 0;
  runs_ = 0;
  if (trial_ == 0) return look_on(mean, others);
  judge_trial(mean, others);
}

/// At the end of a window, whether others use the cores of all threads.
bool WorkerChoice::disturbed(double mean) {
  const double used = used_;
  if (processor_seconds_ != nullptr) used_ = processor_seconds_();
  if (now_ < most_) return true;
  quiet_ = quiet_ == 0 ? mean : std::min(quiet_ * kForgets, mean);
  return mean > kDisturbed * quiet_ || (used >= 0 && used_ - used < kUsed * most_ * sum_);
}

void WorkerChoice::look_on(double mean, bool disturbed) {
  usual_ = mean;
  if (now_ == most_) {
    if (!disturbed) {
      pause_ = 0;
      long_pause_ = kPause;
      return;
    }
    next_ = -1;
  } else if (now_ == 1) {
    next_ = 1;
  }
  if (pause_ > 0) {
    --pause_;
    return;
  }
  trial_ = next_ < 0 ? -std::min(stride_, now_ - 1) : 1;
  now_ += trial_;
}

void WorkerChoice::judge_trial(double mean, bool disturbed) {
  const bool pays = !disturbed || mean < usual_ * (trial_ < 0 ? kFewerPay : 1);
  if (pays) {
    usual_ = mean;
    next_ = trial_ < 0 ? -1 : 1;
    stride_ = 1;
    long_pause_ = kPause;
    pause_ = trial_ < 0 && now_ == 1 ? kPause : 0;
  } else {
    now_ -= trial_;
    next_ = trial_ < 0 ? 1 : -1;
    if (trial_ < 0) stride_ = std::min(2 * stride_, std::max(1, most_ / 2));
    pause_ = long_pause_;
    long_pause_ = std::min(2 * long_pause_, kLongestPause);
  }
  trial_ = 0;
}

}  // namespace ulp::runtime
