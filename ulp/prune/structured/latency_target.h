// Which units go so that the network is as fast as is wanted: found by cutting and measuring.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/select.h"

namespace ulp::prune {

/// Seconds that a network takes, measured: ulp::app::LatencyMeter, or a device of the caller's.
using MeasureSeconds = std::function<double(const graph::GraphModule& module)>;

/// A latency to reach.
struct ULP_API LatencyTarget {
  double share = 0.5;         ///< of the network's own seconds, in (0, 1]
  int64_t measurements = 12;  ///< at most; the network's own is the first of them; at least 3
  /// In [0, 1): done at seconds in [(1 - tolerance) * share, share] of its own, and where the slow and the fast cut next to each
  /// other compute so little more and less.
  double tolerance = 0.02;
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// One cut that was measured.
struct LatencyMeasurement {
  double amount = 0;  ///< of select_units(); 0 is the network as it is
  ModelSize size;
  /// Seconds that the measurements before let expect: on the line between the two whose multiplications are next to those
  /// of this cut, or, of one alone, in proportion. The first one has none.
  std::optional<double> predicted = std::nullopt;
  double measured = 0;  ///< seconds
};

/// What to remove, and what was measured on the way to it.
struct LatencySelection {
  Removals removals;
  double whole = 0;                              ///< seconds of the network as it is
  LatencyMeasurement chosen;                     ///< of the removals
  std::vector<LatencyMeasurement> measurements;  ///< all, in order
};

/// The removals of the smallest amount, of those that were tried, with which the cut network takes at most target.share of
/// the module's own seconds. Cuts are made and measured by `seconds`: the whole network, the smallest one, and then between
/// the largest that was fast enough and the smallest that was not, where the line between them reaches the target or, every other
/// time, in the middle. options.amount is not read. The module stays as it is. Throws ulp::Error for
/// a target that no cut reached, naming the closest share, for a measurement that is no positive number, and as select_units()
/// and remove_units() do.
ULP_API LatencySelection select_latency(const graph::GraphModule& module, const Groups& groups,
                                        const Importance& importance, const UnitSelection& options,
                                        const LatencyTarget& target, const MeasureSeconds& seconds);

}  // namespace ulp::prune
