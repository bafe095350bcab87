// LibTorch's thread count, kept at the number of processors that other programs leave free.
#pragma once

#include <optional>

#include "ulp/base/cpu_usage.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// How AdaptiveThreads looks at the machine.
struct AdaptiveThreadsOptions {
  int most = 0;                 ///< largest thread count; 0: at::get_num_threads() at construction
  double window_seconds = 0.5;  ///< time between two looks; the system's ticks make shorter ones inexact
  UsageProbe probe = {};        ///< empty: read_cpu_usage()
};

/// Sets LibTorch's thread count (at::set_num_threads) by what other programs take of the processors.
///
/// LibTorch cuts a parallel loop into one equal part a thread and waits for all of them, so a thread that
/// shares its core with another program holds up the rest: two threads on two cores, one of which is busy,
/// are slower than one thread. At each look the processors that are free are
///
///     free = usable * (1 - others),   usable = min(processors of the affinity mask, limit of the control group)
///
/// with `others` of share_of_others() since the last look. The count falls to round(free), at least 1, at
/// once. It rises to floor(free + 1/4) when two looks in a row find 3/4 of a processor or more beyond the
/// present count. On a quiet machine it stays at `most`.
///
/// Sums over several threads (gradients of weights, means) are rounded in another order when the count
/// changes, as they are with another OMP_NUM_THREADS. A run that must give the same bits again uses a fixed
/// count and no AdaptiveThreads.
///
/// The count belongs to the calling thread, as LibTorch's does: all calls come from the thread that made the
/// object. Objects may be nested; the inner one is current() while it lives. The destructor sets the count
/// back to what it was.
class ULP_API AdaptiveThreads {
 public:
  /// Throws ulp::Error for a negative `most` or a window that is negative or not finite.
  explicit AdaptiveThreads(AdaptiveThreadsOptions options = {});
  ~AdaptiveThreads();
  AdaptiveThreads(const AdaptiveThreads&) = delete;
  AdaptiveThreads& operator=(const AdaptiveThreads&) = delete;

  /// To be called once a step or batch. Looks at the machine when a window has passed, else costs the reading
  /// of a clock.
  void step();

  int threads() const { return threads_; }  ///< the present count
  int most() const { return options_.most; }
  /// share_of_others() over all windows so far; nothing before the first, and where the system does not say.
  std::optional<double> others() const;
  /// The mean count over these windows, weighted by their lengths; threads() before the first.
  double mean_threads() const;

  /// The innermost object of the calling thread; null where there is none.
  static AdaptiveThreads* current();

 private:
  void set(int threads);
  void follow(double free);

  AdaptiveThreadsOptions options_;
  AdaptiveThreads* outer_;
  int before_, threads_, free_looks_ = 0;
  double last_look_, thread_seconds_ = 0;
  CpuUsage begin_, total_;
};

/// step() of AdaptiveThreads::current(), if there is one: what training and evaluation loops call once a
/// batch.
ULP_API void adapt_threads();

}  // namespace ulp::amp
