// Plans that need no measurement.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/memory/checkpoint/call_order.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::memory {
namespace {

/// How many numbers a value has, for a batch of one.
int64_t numbers_in(const graph::Value& value) {
  if (!value.meta) return 1;
  int64_t count = 1;
  for (const graph::SizeExpr& size : value.meta->sizes) {
    // Free dimensions count as one: what is compared is values of one graph.
    count *= std::max<int64_t>(
        1, size.rest.terms.empty() ? size.at(1) : size.numerator / size.denominator + size.offset);
  }
  return count;
}

/// For each call the numbers of values made before it that it or a later call reads.
std::vector<int64_t> crossing_numbers(const CallOrder& order) {
  std::vector<int64_t> crossing(order.calls.size() + 1, 0);
  std::unordered_map<const graph::Value*, int64_t> last_reader;
  for (int64_t i = 0; i < order.size(); ++i) {
    for (const graph::Value* value : order.calls[static_cast<size_t>(i)]->reads()) last_reader[value] = i;
  }
  for (const auto& [value, last] : last_reader) {
    const auto made = order.number.find(value->producer);
    if (made == order.number.end()) continue;  // inputs and parameters are there anyway
    for (int64_t i = made->second + 1; i <= last; ++i) crossing[static_cast<size_t>(i)] += numbers_in(*value);
  }
  return crossing;
}

/// Segments between cut points. What is behind the last one is no segment.
CheckpointPlan segments_between(const CallOrder& order, const std::vector<int64_t>& cuts) {
  CheckpointPlan plan;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] < cuts[i + 1])
      plan.segments.push_back(
          {order.calls[static_cast<size_t>(cuts[i])], order.calls[static_cast<size_t>(cuts[i + 1] - 1)]});
  }
  return plan;
}

bool is_in(std::string_view scope, std::string_view path) {
  return scope == path || (scope.starts_with(path) && scope[path.size()] == '.');
}

}  // namespace

CheckpointPlan plan_every(const graph::Graph& graph, int64_t k) {
  if (k < 1) fail("memory.plan_every", "expected at least 1 call a segment, got ", k);
  const CallOrder order(graph);
  std::vector<int64_t> cuts;
  for (int64_t i = 0; i < order.size(); i += k) cuts.push_back(i);
  return segments_between(order, cuts);
}

CheckpointPlan plan_sqrt(const graph::Graph& graph) {
  const CallOrder order(graph);
  const std::vector<int64_t> crossing = crossing_numbers(order);
  const double step = std::sqrt(static_cast<double>(order.size()));
  std::vector<int64_t> cuts{0};
  for (double ideal = step; ideal < static_cast<double>(order.size()); ideal += step) {
    int64_t best = std::llround(ideal);
    const auto from = static_cast<int64_t>(ideal - step / 3), to = static_cast<int64_t>(ideal + step / 3);
    for (int64_t i = std::max(from, cuts.back() + 1); i <= std::min(to, order.size() - 1); ++i) {
      if (crossing[static_cast<size_t>(i)] < crossing[static_cast<size_t>(best)]) best = i;
    }
    cuts.push_back(std::min(best, order.size() - 1));
  }
  return segments_between(order, cuts);
}

CheckpointPlan plan_modules(const graph::Graph& graph, const std::vector<std::string>& paths) {
  CheckpointPlan plan;
  for (const std::string& path : paths) {
    Segment segment;
    for (const graph::Node* call : CallOrder(graph).calls) {
      if (!is_in(call->scope, path)) continue;
      if (!segment.first) segment.first = call;
      segment.last = call;
    }
    if (!segment.first)
      fail("memory.plan_modules", "expected the path of a module with calls, got '", path, "'");
    plan.segments.push_back(segment);
  }
  check_plan(graph, plan);
  return plan;
}

}  // namespace ulp::memory
