// Whether the machine was quiet while something was measured: what other programs took of its processors.
#pragma once

#include <optional>
#include <string>

#include "ulp/base/cpu_usage.h"
#include "ulp/base/export.h"

namespace ulp::measure {

/// A share above this spoils a measurement. Below it are the ticks of short spans and what an idle system
/// does.
inline constexpr double kQuietShare = 0.06;

/// Whether a figure measured beside this share is not to be trusted. A share that is not known is no reason
/// to doubt.
inline bool is_disturbed(const std::optional<double>& others) {
  return others && *others > kQuietShare;
}

/// Processors that this process used on average, of those that it could use.
struct CoresUsed {
  double used = 0, usable = 0;
};

/// Seconds that work on `threads` threads would take if each had a processor to itself: `seconds` times the
/// processors used over those that the threads could use. An estimate: the work's processor time is taken to
/// be the same, and all of its threads to be busy. Nothing where the threads are not known (0), nor where
/// next to nothing was used.
ULP_API std::optional<double> quiet_seconds(double seconds, const std::optional<CoresUsed>& cores,
                                            int threads);

/// The mark at a disturbed figure: "busy: others took 38 %", with the cores "busy: others took 38 % (1.2 of 2
/// cores used)", and with the seconds of a quiet machine "busy: others took 38 % (1.2 of 2 cores used; some
/// 8.1 ms when quiet)".
ULP_API std::string busy_mark(double others, const std::optional<CoresUsed>& cores = {},
                              const std::optional<double>& quiet = {});

/// Adds up spans of time, between which something else may be measured.
class ULP_API QuietMeter {
 public:
  /// An empty probe is read_cpu_usage.
  explicit QuietMeter(UsageProbe probe = {});
  void begin();
  void end();
  /// share_of_others() over all spans so far.
  std::optional<double> others() const;
  /// Over all spans so far; nothing where others() says nothing.
  std::optional<CoresUsed> cores() const;

 private:
  UsageProbe probe_;
  CpuUsage begin_, total_;
};

}  // namespace ulp::measure
