// How fast several ways of computing the same thing are, measured in turn so that a drifting machine favours
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::measure {

/// One way of running a network; run(batch) computes one batch of that size.
struct Candidate {
  std::string name;
  std::function<void(int64_t batch)> run;
};

/// Seconds for one call: the median of the rounds, and the smallest and largest.
struct Timing {
  double median = 0, minimum = 0, maximum = 0;
};

/// How often and how long each candidate runs.
struct MeasureOptions {
  int rounds = 7;              ///< A B C A B C ...
  double round_seconds = 0.2;  ///< each candidate repeats its call for about this long in a round
  int warmup_calls = 3;
};

/// Times every candidate at `batch`; the result is in the candidates' order. Throws Interrupted on Ctrl-C.
ULP_API std::vector<Timing> time_in_turns(const std::vector<Candidate>& candidates, int64_t batch,
                                          const MeasureOptions& options = {});

}  // namespace ulp::measure
