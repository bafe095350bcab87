// The search for the plan of least time within a budget: a dynamic program over cut points, whose spans come
// from minimum cuts (span.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/memory/checkpoint/plan.h"
#include "ulp/memory/checkpoint/span.h"

namespace ulp::memory {
namespace {

constexpr size_t kCuts = 48;       ///< most cut points that are tried
constexpr int kLevels = 256;       ///< of kept bytes that the program tells apart
constexpr double kLongest = 0.34;  ///< of the graph: the longest segment
/// Prices of a second, as multiples of all saved bytes over the forward's seconds.
constexpr double kPrices[] = {0, 0.1, 0.3, 1, 3, 10, 100};

/// Positions between calls where little crosses: the beginning, the end, and the best of equal parts of the
/// graph.
std::vector<int> cut_points(const CostTable& table) {
  const std::vector<int64_t>& crossing = table.crossing;
  const auto parts = std::min<size_t>(kCuts, static_cast<size_t>(std::max(1, table.size() - 1)));
  std::vector<int> cuts{0};
  for (size_t part = 0; part < parts; ++part) {
    const auto at = [&](size_t p) {
      return 1 + static_cast<int>(static_cast<size_t>(table.size() - 1) * p / parts);
    };
    const int from = at(part), to = at(part + 1);
    if (from >= to) continue;
    const auto best = std::min_element(crossing.begin() + from, crossing.begin() + to);
    cuts.push_back(static_cast<int>(best - crossing.begin()));
  }
  if (table.size() > 0) cuts.push_back(table.size());
  return cuts;
}

class Planner {
 public:
  Planner(const graph::Graph& graph, const Costs& costs) : table_(graph, costs), cuts_(cut_points(table_)) {
    const size_t count = cuts_.size();
    options_.resize(count * count);
    double seconds = 0;
    for (const CostTable::Call& call : table_.calls) seconds += call.seconds;
    const double unit =
        static_cast<double>(keep_all(table_, 0, table_.size()).kept_bytes) / std::max(seconds, 1e-9);
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = a + 1; b < count; ++b) find_options(a, b, unit);
    }
  }

  /// A path of spans through the cut points whose bytes stay within the budget; nothing where there is none.
  std::optional<CheckpointPlan> plan(int64_t budget) const;
  /// What everything takes that is kept, and no budget needs to exceed.
  int64_t most() const { return options_[cuts_.size() - 1].front().peak_bytes; }

 private:
  /// The best way to a cut point with so many bytes kept.
  struct Label {
    double seconds = std::numeric_limits<double>::infinity();
    int64_t kept = 0;
    int cut = -1, level = -1;  ///< where it comes from
    const SpanOption* option = nullptr;
  };

  void find_options(size_t a, size_t b, double unit) {
    std::vector<SpanOption>& found = options_[a * cuts_.size() + b];
    found.push_back(keep_all(table_, cuts_[a], cuts_[b]));
    if (cuts_[b] - cuts_[a] > std::max(8.0, kLongest * table_.size())) return;
    for (const double price : kPrices) {
      SpanOption option = keep_some(table_, cuts_[a], cuts_[b], price * unit);
      const auto as_good = [&](const SpanOption& other) {
        return other.kept_bytes <= option.kept_bytes && other.peak_bytes <= option.peak_bytes &&
               other.seconds <= option.seconds;
      };
      if (std::ranges::none_of(found, as_good)) found.push_back(std::move(option));
    }
  }

  CheckpointPlan trace(const std::vector<std::vector<Label>>& labels, int level) const;

  CostTable table_;
  std::vector<int> cuts_;
  std::vector<std::vector<SpanOption>> options_;  ///< from cut a to cut b at a * count + b
};

std::optional<CheckpointPlan> Planner::plan(int64_t budget) const {
  const size_t count = cuts_.size();
  if (count < 2) return CheckpointPlan{};
  std::vector<std::vector<Label>> labels(count, std::vector<Label>(kLevels + 1));
  labels[0][0].seconds = 0;
  const double level_bytes = std::max(1.0, static_cast<double>(budget) / kLevels);
  for (size_t a = 0; a + 1 < count; ++a) {
    for (int level = 0; level <= kLevels; ++level) {
      const Label& from = labels[a][static_cast<size_t>(level)];
      if (std::isinf(from.seconds)) continue;
      for (size_t b = a + 1; b < count; ++b) {
        for (const SpanOption& option : options_[a * count + b]) {
          const int64_t kept = from.kept + option.kept_bytes;
          if (std::max(kept, from.kept + option.peak_bytes) > budget) continue;
          Label& to = labels[b][static_cast<size_t>(std::ceil(static_cast<double>(kept) / level_bytes))];
          const double seconds = from.seconds + option.seconds;
          if (seconds > to.seconds || (seconds == to.seconds && kept >= to.kept)) continue;
          to = {seconds, kept, static_cast<int>(a), level, &option};
        }
      }
    }
  }
  int best = -1;
  for (int level = 0; level <= kLevels; ++level) {
    const double seconds = labels.back()[static_cast<size_t>(level)].seconds;
    if (std::isinf(seconds)) continue;
    if (best < 0 || seconds < labels.back()[static_cast<size_t>(best)].seconds) best = level;
  }
  if (best < 0) return std::nullopt;
  return trace(labels, best);
}

CheckpointPlan Planner::trace(const std::vector<std::vector<Label>>& labels, int level) const {
  CheckpointPlan plan;
  for (int cut = static_cast<int>(cuts_.size()) - 1; cut > 0;) {
    const Label& label = labels[static_cast<size_t>(cut)][static_cast<size_t>(level)];
    const int begin = cuts_[static_cast<size_t>(label.cut)], end = cuts_[static_cast<size_t>(cut)];
    if (label.option->checkpointed) {
      Segment segment{table_.order.calls[static_cast<size_t>(begin)],
                      table_.order.calls[static_cast<size_t>(end - 1)]};
      for (int value : label.option->kept)
        segment.kept.push_back(table_.values[static_cast<size_t>(value)].value);
      for (const CostTable::Value& value : table_.values) {
        if (value.made >= begin && value.made < end && value.last_read >= end)
          segment.kept.push_back(value.value);
      }
      for (int call : label.option->kept_inner)
        segment.kept_inner.push_back(table_.order.calls[static_cast<size_t>(call)]);
      plan.segments.push_back(std::move(segment));
    }
    cut = label.cut;
    level = label.level;
  }
  std::ranges::reverse(plan.segments);
  return plan;
}

}  // namespace

CheckpointPlan plan_for_budget(const graph::Graph& graph, const Costs& costs, int64_t bytes) {
  if (bytes < 0) fail("memory.plan_for_budget", "expected a budget in bytes, got ", bytes);
  const Planner planner(graph, costs);
  const int64_t counted = std::max<int64_t>(0, bytes - costs.margin);
  if (auto plan = planner.plan(counted)) return std::move(*plan);
  int64_t too_little = counted, enough = std::max(planner.most(), counted + 1);
  while (enough - too_little > enough / 200) {
    const int64_t middle = too_little + (enough - too_little) / 2;
    (planner.plan(middle) ? enough : too_little) = middle;
  }
  fail("memory.plan_for_budget", "expected a budget of at least ", enough + costs.margin,
       " bytes for activations and their gradients", ", got ", bytes);
}

int64_t peak_without_plan(const graph::Graph& graph, const Costs& costs) {
  const CostTable table(graph, costs);
  return keep_all(table, 0, table.size()).peak_bytes + costs.margin;
}

}  // namespace ulp::memory
