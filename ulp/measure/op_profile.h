// Where the time of a piece of LibTorch code goes, by operator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::measure {

/// The time spent in one operator.
struct OpTime {
  std::string op;  ///< "aten::addmm"; "other" for time outside of operators
  int64_t calls = 0;
  double seconds = 0;  ///< in the operator itself, without those it called
};

/// Runs `work` once with an observer of the dispatcher on this thread (backward passes on the CPU run on it,
/// too) and returns the operators by time, longest first; the seconds add up to the time of the whole.
/// Observing costs about a microsecond a call.
ULP_API std::vector<OpTime> profile_ops(const std::function<void()>& work);

}  // namespace ulp::measure
