// The latency of a network's engine, as a function of the network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/measure/measure.h"
#include "ulp/prune/structured/width_table.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {

/// How latencies are measured.
struct LatencyOptions {
  int64_t batch = 1;
  int threads = 0;              ///< of the engines; 0: one per core the process may use
  int rounds = 5;               ///< in turn with the reference
  double round_seconds = 0.05;  ///< of each engine in a round
  std::function<void(int64_t done, int64_t total)> progress =
      {};  ///< rounds of one measurement; may be empty
};

/// Times engines of these plans in turn, on the same kind of random inputs; the result is in their order.
/// Throws Interrupted on Ctrl-C.
ULP_API std::vector<measure::Timing> time_engines(const std::vector<const runtime::Plan*>& plans,
                                                  const LatencyOptions& options = {});

/// Lowers networks and times their engines in fp32, each in turn with the reference's: a machine that gets
/// slower between two measurements makes no network slower than another. Inputs are random; free dimensions
/// are at their largest.
class ULP_API LatencyMeter {
 public:
  /// Throws ulp::Error where lower() does.
  explicit LatencyMeter(const graph::GraphModule& reference, const LatencyOptions& options = {});
  ~LatencyMeter();
  LatencyMeter(LatencyMeter&&) noexcept;
  LatencyMeter& operator=(LatencyMeter&&) noexcept;

  /// Median seconds of one run in eval mode, times what the reference took at first over what it takes now.
  /// Networks of other inputs than the reference's are fine. Throws ulp::Error as lower() does, and
  /// Interrupted on Ctrl-C.
  double operator()(const graph::GraphModule& module);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// prune::measure_widths() with engines on this machine. Throws Interrupted on Ctrl-C.
ULP_API prune::WidthTable measure_width_table(const prune::WidthMeasurement& what = {},
                                              const LatencyOptions& options = {.rounds = 3,
                                                                               .round_seconds = 0.02});

}  // namespace ulp::app
