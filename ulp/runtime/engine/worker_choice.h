// How many threads of a pool compute a run, by measured times: a core that other programs use costs more in
// waiting than it gives.
#pragma once

#include "ulp/base/export.h"

namespace ulp::runtime {

/// Looks at runs of one kind (a network, its sizes, a batch). All threads compute while a run takes what it
/// takes on a quiet machine. Where runs take a quarter longer, or all threads together get less than three
/// quarters of their cores, one thread fewer is tried for a window of some runs, and kept if these are
/// faster; then one fewer again, or one more. What did not pay is tried again after 8 windows, then 16, then
/// 32, with two threads fewer, then four. The results of a run do not depend on it.
class ULP_API WorkerChoice {
 public:
  /// 1 or more threads, the caller among them. `processor_seconds` tells what the process has used so far;
  /// null: not known.
  explicit WorkerChoice(int most, double (*processor_seconds)() = nullptr)
      : most_(most), now_(most), processor_seconds_(processor_seconds) {}

  /// That compute in the next run.
  int workers() const { return now_; }
  /// A run has taken so long.
  void ran(double seconds);
  /// Runs of another kind follow.
  void forget() { *this = WorkerChoice(most_, processor_seconds_); }

 private:
  bool disturbed(double mean);
  void look_on(double mean, bool disturbed);
  void judge_trial(double mean, bool disturbed);

  int most_, now_;
  double (*processor_seconds_)();
  double used_ = -1;    ///< processor_seconds() at the end of the window before; negative: not known
  int trial_ = 0;       ///< the step from before that is tried; 0: none
  int next_ = -1;       ///< where the next trial goes
  int stride_ = 1;      ///< threads that it takes away
  int pause_ = 0;       ///< windows until a trial
  int long_pause_ = 8;  ///< after a trial that did not pay
  double quiet_ = 0;    ///< seconds of a run of all threads when nothing disturbs; 0: not known
  double usual_ = 0;    ///< seconds of a run without a trial
  double sum_ = 0;      ///< seconds of the runs of this window
  int runs_ = 0;
};

}  // namespace ulp::runtime
