// Cutting to a latency, with clocks that are functions of the network.
#include "ulp/prune/structured/latency_target.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <sstream>

#include "cut_networks.h"
#include "error_of.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"

namespace ulp::test {
namespace {

struct Timed {
  Captured module;
  prune::Groups groups;
  prune::Importance scores;
  int calls = 0;
  explicit Timed(const char* name = "resnet20") {
    torch::manual_seed(2);
    module = capture(*models::make_model(name), {torch::randn({2, 3, 32, 32})});
    groups = prune::groups(module->graph());
    scores = prune::importance(*module, groups);
  }
  prune::LatencySelection select(const prune::LatencyTarget& target, const prune::MeasureSeconds& clock,
                                 prune::UnitScope scope = prune::UnitScope::global) {
    calls = 0;
    return prune::select_latency(*module, groups, scores, {.scope = scope}, target,
                                 [&](const graph::GraphModule& cut) { return ++calls, clock(cut); });
  }
};

double macs(const graph::GraphModule& module) {
  return static_cast<double>(prune::size_of(module.graph()).macs);
}

/// A fixed cost beside that of the multiplications.
double linear_clock(const graph::GraphModule& module) {
  return 1e-3 + 1e-10 * macs(module);
}

/// Channels in steps of 16, as kernels work.
double stepped_clock(const graph::GraphModule& module) {
  double seconds = 1e-4;
  for (const auto& [name, attribute] : module.graph().attributes()) {
    if (attribute.tensor.dim() != 4) continue;
    const auto steps = [&](int64_t dim) {
      return static_cast<double>((attribute.tensor.size(dim) + 15) / 16);
    };
    seconds += 1e-4 * steps(0) * steps(1);
  }
  return seconds;
}

TEST(LatencyTarget, IsReachedWithFewMeasurements) {
  Timed timed;
  for (const double share : {0.9, 0.6, 0.4}) {
    for (const auto scope : {prune::UnitScope::local, prune::UnitScope::global}) {
      const auto found = timed.select({.share = share}, linear_clock, scope);
      EXPECT_LE(timed.calls, 12);
      EXPECT_EQ(found.measurements.size(), static_cast<size_t>(timed.calls));
      EXPECT_EQ(found.whole, linear_clock(*timed.module));
      EXPECT_LE(found.chosen.measured, share * found.whole);
      EXPECT_GE(found.chosen.measured, 0.93 * share * found.whole);
      ASSERT_TRUE(found.chosen.predicted);
      EXPECT_NEAR(*found.chosen.predicted, found.chosen.measured, 1e-9);  // the clock is a line
      const auto made = prune::remove_units(*timed.module, timed.groups, found.removals).module;
      EXPECT_EQ(linear_clock(*made), found.chosen.measured);
      EXPECT_EQ(found.chosen.size.macs, prune::size_of(made->graph()).macs);
    }
  }
}

TEST(LatencyTarget, TheMeasurementsSayWhatWasExpected) {
  Timed timed;
  const auto found = timed.select({.share = 0.5}, stepped_clock);
  EXPECT_LE(found.chosen.measured, 0.5 * found.whole);
  EXPECT_FALSE(found.measurements.front().predicted);
  EXPECT_EQ(found.measurements.front().amount, 0);
  EXPECT_EQ(found.measurements.at(1).amount, 1);
  // Of one measurement alone: in proportion.
  const auto whole = found.measurements.front(), smallest = found.measurements.at(1);
  EXPECT_NEAR(*smallest.predicted, whole.measured * double(smallest.size.macs) / double(whole.size.macs),
              1e-9);
  // No cut that was slower than wanted is smaller than the chosen one.
  for (const auto& one : found.measurements) {
    if (one.measured > 0.5 * found.whole) {
      EXPECT_LT(one.amount, found.chosen.amount);
    }
    EXPECT_EQ(one.amount == 0, !one.predicted.has_value());
  }
}

TEST(LatencyTarget, ASmallestNetworkThatIsSlowHidesNoFastOne) {
  Timed timed;
  const double smallest =
      macs(*prune::remove_units(*timed.module, timed.groups,
                                prune::select_units(timed.groups, timed.scores,
                                                    {.amount = 1, .scope = prune::UnitScope::global}))
                .module);
  const auto found = timed.select({.share = 0.6}, [&](const graph::GraphModule& module) {
    return macs(module) == smallest ? 1.0 : linear_clock(module);
  });
  EXPECT_LE(found.chosen.measured, 0.6 * found.whole);
  EXPECT_LE(timed.calls, 12);
}

TEST(LatencyTarget, NothingGoesForTheWholeLatency) {
  Timed timed("lenet5");
  const auto found = timed.select({.share = 1}, linear_clock);
  EXPECT_EQ(timed.calls, 1);
  for (const auto& units : found.removals.units) EXPECT_TRUE(units.empty());
  EXPECT_EQ(found.chosen.measured, found.whole);
}

TEST(LatencyTarget, SaysHowCloseItCame) {
  Timed timed("lenet5");
  const auto closest = [&] {
    return linear_clock(
               *prune::remove_units(*timed.module, timed.groups,
                                    prune::select_units(timed.groups, timed.scores,
                                                        {.amount = 1, .scope = prune::UnitScope::global}))
                    .module) /
           linear_clock(*timed.module);
  }();
  std::ostringstream text;
  text << "expected a latency of at most 0.01 of the network's, got " << closest << " at the closest";
  EXPECT_ERROR(timed.select({.share = 0.01}, linear_clock), text.str());
  EXPECT_LE(timed.calls, 4);
  EXPECT_ERROR(timed.select({.share = 0.5}, [](const auto&) { return NAN; }),
               "expected a positive number of seconds, got nan");
  EXPECT_ERROR(timed.select({.share = 0}, linear_clock), "expected a share in (0, 1], got 0");
  EXPECT_ERROR(timed.select({.share = 0.5, .measurements = 2}, linear_clock),
               "expected at least 3 measurements, got 2");
  EXPECT_ERROR(prune::select_latency(*timed.module, timed.groups, timed.scores, {}, {}, {}),
               "expected a function that measures, got none");
}

}  // namespace
}  // namespace ulp::test
