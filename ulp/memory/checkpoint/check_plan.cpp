// Whether a plan fits its graph.
#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/memory/checkpoint/call_order.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::memory {
namespace {

struct NodeRange {
  int64_t first, last;
  bool holds(const NodeRange& other) const { return first <= other.first && other.last <= last; }
  bool apart(const NodeRange& other) const { return last < other.first || other.last < first; }
};

void check_kept(const CallOrder& order, const Segment& segment, const NodeRange& range) {
  const auto check = [&](const graph::Node* node) {
    const int64_t number = order.of(node);
    if (number < range.first || number > range.last)
      fail("memory.plan", "expected values of its own calls to be kept in the segment from '",
           segment.first->name(), "' to '", segment.last->name(), "', got '", node->name(), "'");
  };
  for (const graph::Value* value : segment.kept) check(value->producer);
  for (const graph::Node* node : segment.kept_inner) check(node);
}

}  // namespace

void check_plan(const graph::Graph& graph, const CheckpointPlan& plan) {
  const CallOrder order(graph);
  std::vector<NodeRange> ranges;
  for (const Segment& segment : plan.segments) {
    const NodeRange range{order.of(segment.first), order.of(segment.last)};
    if (range.first > range.last)
      fail("memory.plan", "expected the first call of a segment before its last one, got '",
           segment.first->name(), "' and '", segment.last->name(), "'");
    check_kept(order, segment, range);
    for (const NodeRange& other : ranges) {
      const bool same = range.first == other.first && range.last == other.last;
      if (range.apart(other) || (!same && (range.holds(other) || other.holds(range)))) continue;
      fail("memory.plan", "expected segments that are apart or one in the other, got one from '",
           segment.first->name(), "' to '", segment.last->name(), "' that overlaps one from '",
           order.calls[static_cast<size_t>(other.first)]->name(), "' to '",
           order.calls[static_cast<size_t>(other.last)]->name(), "'");
    }
    ranges.push_back(range);
  }
}

}  // namespace ulp::memory
