// What limits the processors of this process: the affinity mask and the quotas of its control groups.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {

/// What the files of the control groups say.
struct CpuQuota {
  double limit = 0;  ///< processors: the tightest of the process's own group and those around it
  /// Seconds of everything in that group; nothing where they are not counted.
  std::optional<double> used = {};
};

/// Reads `cpu.max` (cgroup v2) and `cpu.cfs_quota_us` (v1) of the groups of this process and of all groups
/// around them, where /proc/self/mountinfo says that they are. Nothing without a quota. `root` is the folder
/// that stands for "/".
ULP_API std::optional<CpuQuota> read_cpu_quota(const std::filesystem::path& root = "/");

/// By number, whether the calling thread may run on a processor (sched_getaffinity); empty where the system
/// does not say.
ULP_API std::vector<bool> affinity_mask();

/// Threads that so many processors can keep busy under a quota: the smaller number, rounded up, at least 1.
ULP_API int threads_for(int processors, const std::optional<CpuQuota>& quota);

/// Processors that the calling thread may use: those of its affinity mask, or the quota of its control
/// groups, rounded up, where that is lower; at least 1.
ULP_API int usable_cores();

}  // namespace ulp
