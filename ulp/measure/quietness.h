// Whether the machine was quiet while something was measured: what other programs took of its processors.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ulp/base/export.h"

namespace ulp::measure {

/// The control group (cgroup v2) that limits this process hardest.
struct CpuGroup {
  double limit = 0;  ///< processors
  double used = 0;   ///< seconds of everything in the group
};

/// What the system has counted at one moment. Times are in seconds and only grow.
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

/// A share above this spoils a measurement. Below it are the ticks of short spans and what an idle system
/// does.
inline constexpr double kQuietShare = 0.06;

/// Whether a figure measured beside this share is not to be trusted. A share that is not known is no reason
/// to doubt.
inline bool is_disturbed(const std::optional<double>& others) {
  return others && *others > kQuietShare;
}

/// The mark at a disturbed figure: "busy: others took 38 %".
ULP_API std::string busy_mark(double others);

/// Where CpuUsage comes from; tests give their own.
using UsageProbe = std::function<CpuUsage()>;

/// Adds up spans of time, between which something else may be measured.
class ULP_API QuietMeter {
 public:
  /// An empty probe is read_cpu_usage.
  explicit QuietMeter(UsageProbe probe = {});
  void begin();
  void end();
  /// share_of_others() over all spans so far.
  std::optional<double> others() const;

 private:
  UsageProbe probe_;
  CpuUsage begin_, total_;
};

}  // namespace ulp::measure
