// How fast several ways of computing the same thing are, measured in turn so that a drifting machine favours
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/measure/interference.h"

namespace ulp::measure {

/// One way of running a network; run(batch) computes one batch of that size.
struct Candidate {
  std::string name;
  std::function<void(int64_t batch)> run;
  int threads = 0;  ///< that it computes on; 0: not known
};

/// Seconds for one call: the median of the rounds, and the smallest and largest.
struct Timing {
  double median = 0, minimum = 0, maximum = 0;
  /// The share of the processors that others took in this candidate's rounds; see share_of_others().
  std::optional<double> others = {};
  /// What this process used of them in these rounds.
  std::optional<CoresUsed> cores = {};
  /// The median that is expected of a quiet machine; see quiet_seconds().
  std::optional<double> quiet = {};

  /// busy_mark() of a disturbed figure.
  std::string mark() const { return busy_mark(others.value_or(0), cores); }
  /// The same for a time, with what is expected of a quiet machine.
  std::string time_mark() const { return busy_mark(others.value_or(0), cores, quiet); }
};

/// How often and how long each candidate runs.
struct MeasureOptions {
  int rounds = 7;              ///< A B C A B C ...
  double round_seconds = 0.2;  ///< each candidate repeats its call for about this long in a round
  int warmup_calls = 3;
  int attempts = 3;  ///< measurements of a candidate while others use the processors; the quietest counts
  UsageProbe probe = {};  ///< empty: the machine itself
  /// Called before each round with how many are done and how many there will be at most; may be empty.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// Times every candidate at `batch`; the result is in the candidates' order. Candidates that were disturbed
/// are measured again, in turn among themselves; one that stays disturbed says so in `others`. Throws
/// Interrupted on Ctrl-C.
ULP_API std::vector<Timing> time_in_turns(const std::vector<Candidate>& candidates, int64_t batch,
                                          const MeasureOptions& options = {});

}  // namespace ulp::measure
