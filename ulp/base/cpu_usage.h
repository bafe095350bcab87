// Counts the processors that this process may use, and the time that it and others have used of them.
#pragma once

#include <functional>
#include <optional>

#include "ulp/base/cpu_limits.h"
#include "ulp/base/export.h"

namespace ulp {

/// The control group that limits this process hardest (read_cpu_quota()).
struct CpuGroup {
  double limit = 0;  ///< processors
  double used = 0;   ///< seconds of everything in the group
};

/// The counters of the system at one moment. Times are in seconds and only grow.
struct CpuUsage {
  double wall = 0;     ///< the time, from some moment on
  double all = 0;      ///< of the processors this process may use: not idle, or taken by the hypervisor
  double own = 0;      ///< of this process, all of its threads
  int processors = 0;  ///< that this process may use; 0 where the system does not say
  std::optional<CpuGroup> group = {};  ///< nothing where no group limits
};

/// Reads /proc/stat, getrusage, sched_getaffinity and the files of the control group. `processors` is 0 where
/// there is no /proc/stat.
ULP_API CpuUsage read_cpu_usage();

/// The share, in 0..1, of the processors this process could use between two moments that others took: other
/// programs, other members of its control group, other virtual machines (stolen time). Under a group's limit
/// the processors beyond the limit count as free for others. Nothing where the system does not say, and for
/// spans too short for its ticks of 10 ms (below a tenth of a second).
ULP_API std::optional<double> share_of_others(const CpuUsage& before, const CpuUsage& after);

/// Adds what lies between two moments to `sum`, which starts empty: share_of_others({}, sum) is that of all
/// spans together.
ULP_API void add_span(CpuUsage& sum, const CpuUsage& before, const CpuUsage& after);

/// Where CpuUsage comes from; tests give their own.
using UsageProbe = std::function<CpuUsage()>;

}  // namespace ulp
