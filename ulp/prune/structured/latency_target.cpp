#include "ulp/prune/structured/latency_target.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ulp/base/error.h"
#include "ulp/prune/structured/size_counter.h"

namespace ulp::prune {

namespace {

constexpr double kFinest = 1e-6;  // amounts that are closer select the same units

/// What seconds are taken to be linear in.
double extent(const ModelSize& size) {
  return static_cast<double>(size.macs > 0 ? size.macs : size.parameters);
}

class LatencySearch {
 public:
  LatencySearch(const graph::GraphModule& module, const Groups& groups, const Importance& importance,
                const UnitSelection& options, const LatencyTarget& target, const MeasureSeconds& seconds)
      : module_(module),
        groups_(groups),
        importance_(importance),
        options_(options),
        target_(target),
        seconds_(seconds),
        counter_(module.graph(), groups) {}

  LatencySelection run() {
    const Trial whole = measure(removals_at(0), 0);
    made_.whole = whole.seconds;
    wanted_ = target_.share * made_.whole;
    low_ = whole;
    if (whole.seconds <= wanted_) return finish(whole);  // a share of 1
    if (!find_fast()) fail_with_closest();
    for (int64_t turn = 0; left() > 0 && high_.seconds < (1 - target_.tolerance) * wanted_ && apart();
         ++turn) {
      if (!narrow_bracket(turn % 2 == 1)) break;
    }
    return finish(high_);
  }

 private:
  struct Trial {
    Removals removals;
    double amount = 0, seconds = 0;
    size_t index = 0;  // of the measurement
  };

  int64_t left() const { return target_.measurements - static_cast<int64_t>(made_.measurements.size()); }

  Removals removals_at(double amount) const {
    UnitSelection chosen = options_;
    chosen.amount = amount;
    return select_units(groups_, importance_, chosen);
  }

  Trial measure(Removals removals, double amount) {
    LatencyMeasurement one{.amount = amount, .size = counter_(removals)};
    one.predicted = predict(extent(one.size));
    one.measured = seconds_(*remove_units(module_, groups_, removals).module);
    if (!(one.measured > 0) || !std::isfinite(one.measured))
      fail("prune.select_latency", "expected a positive number of seconds, got ", one.measured);
    line_[extent(one.size)] = one.measured;
    made_.measurements.push_back(one);
    return {std::move(removals), amount, one.measured, made_.measurements.size() - 1};
  }

  /// Seconds of a cut of this extent.
  std::optional<double> predict(double at) const {
    if (line_.empty()) return std::nullopt;
    if (line_.size() == 1) return line_.begin()->second * at / std::max(line_.begin()->first, 1.0);
    auto above = line_.lower_bound(at);
    if (above == line_.begin()) ++above;
    if (above == line_.end()) --above;
    const auto below = std::prev(above);
    const double slope = (above->second - below->second) / (above->first - below->first);
    return below->second + slope * (at - below->first);
  }

  /// The smallest network, then others: a kernel may be slower on fewer channels.
  bool find_fast() {
    std::vector<Removals> tried;
    for (const double amount : {1.0, 0.75, 0.5}) {
      if (left() == 0) return false;
      Removals removals = removals_at(amount);
      if (std::ranges::any_of(tried, [&](const Removals& one) { return one.units == removals.units; }))
        continue;
      high_ = measure(std::move(removals), amount);
      if (high_.seconds <= wanted_) return true;
      tried.push_back(high_.removals);
    }
    return false;
  }

  /// Between the bracket's ends, where the line between them reaches the target.
  double on_the_line() const {
    const double aim = (1 - target_.tolerance / 2) * wanted_;
    const double near = extent(made_.measurements[high_.index].size),
                 far = extent(made_.measurements[low_.index].size),
                 goal = near + (far - near) * (aim - high_.seconds) / (low_.seconds - high_.seconds);
    double low = low_.amount, high = high_.amount;
    for (int i = 0; i < 12; ++i) {
      const double middle = (low + high) / 2;
      (extent(counter_(removals_at(middle))) > goal ? low : high) = middle;
    }
    return high;
  }

  /// The ends differ by more than the tolerance in what they compute.
  bool apart() const {
    const double near = extent(made_.measurements[high_.index].size),
                 far = extent(made_.measurements[low_.index].size);
    return std::abs(far - near) > target_.tolerance * near;
  }

  /// False where nothing is between the ends.
  bool narrow_bracket(bool in_the_middle) {
    while (high_.amount - low_.amount > kFinest) {
      double amount = in_the_middle ? (low_.amount + high_.amount) / 2 : on_the_line();
      Removals removals = removals_at(amount);
      if (removals.units == low_.removals.units) {
        low_.amount = amount;
      } else if (removals.units == high_.removals.units) {
        high_.amount = amount;
      } else {
        Trial trial = measure(std::move(removals), amount);
        (trial.seconds <= wanted_ ? high_ : low_) = std::move(trial);
        return true;
      }
      in_the_middle = true;
    }
    return false;
  }

  LatencySelection finish(const Trial& trial) {
    made_.removals = trial.removals;
    made_.chosen = made_.measurements[trial.index];
    return std::move(made_);
  }

  [[noreturn]] void fail_with_closest() const {
    const LatencyMeasurement& closest =
        *std::ranges::min_element(made_.measurements, {}, &LatencyMeasurement::measured);
    fail("prune.select_latency", "expected a latency of at most ", target_.share, " of the network's, got ",
         closest.measured / made_.whole, " at the closest, with ", closest.size.parameters,
         " parameters and ", closest.size.macs, " multiplications left");
  }

  const graph::GraphModule& module_;
  const Groups& groups_;
  const Importance& importance_;
  const UnitSelection& options_;
  const LatencyTarget& target_;
  const MeasureSeconds& seconds_;
  const SizeCounter counter_;
  LatencySelection made_;
  std::map<double, double> line_;  // seconds by extent
  Trial low_, high_;               // too slow, fast enough
  double wanted_ = 0;
};

}  // namespace

void LatencyTarget::validate() const {
  if (!(share > 0 && share <= 1)) fail("prune.select_latency", "expected a share in (0, 1], got ", share);
  if (measurements < 3) fail("prune.select_latency", "expected at least 3 measurements, got ", measurements);
  if (!(tolerance >= 0 && tolerance < 1))
    fail("prune.select_latency", "expected a tolerance in [0, 1), got ", tolerance);
}

LatencySelection select_latency(const graph::GraphModule& module, const Groups& groups,
                                const Importance& importance, const UnitSelection& options,
                                const LatencyTarget& target, const MeasureSeconds& seconds) {
  target.validate();
  if (!seconds) fail("prune.select_latency", "expected a function that measures, got none");
  return LatencySearch(module, groups, importance, options, target, seconds).run();
}

}  // namespace ulp::prune
