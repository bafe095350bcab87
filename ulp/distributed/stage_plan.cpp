#include "ulp/distributed/stage_plan.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/distributed/stage_calls.h"
#include "ulp/graph/describe.h"
#include "ulp/memory/checkpoint/costs.h"

namespace ulp::distributed {

using memory::CallOrder;

StagePlan plan_of(const CallOrder& order, const std::vector<int>& begins) {
  StagePlan plan;
  for (size_t s = 0; s < begins.size(); ++s) {
    const int64_t end = s + 1 < begins.size() ? begins[s + 1] : order.size();
    plan.stages.push_back(
        {order.calls[static_cast<size_t>(begins[s])], order.calls[static_cast<size_t>(end) - 1]});
  }
  return plan;
}

void check_count(const char* where, const CallOrder& order, int stages) {
  if (stages < 1 || stages > order.size())
    fail(where, "expected from 1 to ", order.size(), " stages, as many as the graph has calls, got ", stages);
}

std::vector<std::string> describe_stages(const StagePlan& plan) {
  std::vector<std::string> lines;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    std::ostringstream text;
    text << "stage " << s << ": " << graph::label(*stage.first) << " to " << graph::label(*stage.last);
    if (stage.seconds > 0) text << ", " << stage.seconds * 1e3 << " ms";
    if (stage.bytes > 0) text << ", " << stage.bytes << " bytes";
    lines.push_back(text.str());
  }
  return lines;
}

std::vector<int64_t> stage_numbers(const graph::Graph& graph, const StagePlan& plan) {
  const CallOrder order(graph);
  std::vector<int64_t> numbers;
  for (const Stage& stage : plan.stages) numbers.push_back(order.of(stage.first));
  numbers.push_back(order.size());
  return numbers;
}

StagePlan stages_of_numbers(const graph::Graph& graph, const std::vector<int64_t>& numbers) {
  const CallOrder order(graph);
  const bool rises = std::ranges::adjacent_find(numbers, std::greater_equal<>()) == numbers.end();
  if (numbers.size() < 2 || numbers.front() != 0 || numbers.back() != order.size() || !rises) return {};
  return plan_of(order, {numbers.begin(), numbers.end() - 1});
}

void check_stages(const graph::Graph& graph, const StagePlan& plan) {
  constexpr const char* kWhere = "distributed.check_stages";
  const CallOrder order(graph);
  check_count(kWhere, order, static_cast<int>(plan.stages.size()));
  int64_t next = 0;
  for (const Stage& stage : plan.stages) {
    if (order.of(stage.first) != next || order.of(stage.last) < next)
      fail(kWhere, "expected a stage from ", graph::label(*order.calls[static_cast<size_t>(next)]),
           " on, got one from ", graph::label(*stage.first), " to ", graph::label(*stage.last));
    next = order.of(stage.last) + 1;
    if (next == order.size() && &stage != &plan.stages.back())
      fail(kWhere, "expected the last stage to end with the last call, got one before it");
  }
  if (next != order.size())
    fail(kWhere, "expected the last stage to end with ", graph::label(*order.calls.back()), ", got ",
         graph::label(*plan.stages.back().last));
}

StagePlan share_stages(ProcessGroup& group, const graph::Graph& graph, const StagePlan& plan) {
  const CallOrder order(graph);
  // The number of calls, where each stage begins, its seconds and bytes; as doubles, which hold them all.
  const at::Tensor count = at::full({2}, static_cast<double>(order.size()), at::kDouble);
  count[1] = static_cast<double>(plan.stages.size());
  group.broadcast(count).wait();
  const bool same = count[0].item<double>() == static_cast<double>(order.size());
  if (all_reduce(group, same ? 0 : 1, ReduceOp::max) != 0)
    fail("distributed.share_stages", "expected the same graph on every rank, got ", order.size(),
         " calls on rank ", group.rank(), " and ", count[0].item<double>(), " on rank 0");
  const at::Tensor rows = at::zeros({count[1].item<int64_t>(), 3}, at::kDouble);
  if (group.rank() == 0) {
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const Stage& stage = plan.stages[s];
      const auto row = static_cast<int64_t>(s);
      rows[row][0] = static_cast<double>(order.of(stage.first));
      rows[row][1] = stage.seconds;
      rows[row][2] = static_cast<double>(stage.bytes);
    }
  }
  group.broadcast(rows).wait();
  std::vector<int> begins;
  for (int64_t s = 0; s < rows.size(0); ++s) begins.push_back(rows[s][0].item<int>());
  StagePlan shared = plan_of(order, begins);
  for (int64_t s = 0; s < rows.size(0); ++s) {
    shared.stages[static_cast<size_t>(s)].seconds = rows[s][1].item<double>();
    shared.stages[static_cast<size_t>(s)].bytes = rows[s][2].item<int64_t>();
  }
  check_stages(graph, shared);
  return shared;
}

StagePlan measured_stages(ProcessGroup& group, const graph::GraphModule& model,
                          const std::vector<at::Tensor>& inputs) {
  StagePlan plan;
  if (group.rank() == 0)
    plan = balance_stages(model.graph(), memory::measure_costs(model, inputs), group.size());
  return share_stages(group, model.graph(), plan);
}

StagePlan measured_stages(ProcessGroup& group, const graph::GraphModule& model,
                          const std::vector<at::Tensor>& inputs, int64_t budget,
                          const StageAssignmentOptions& options) {
  // Bytes are the same everywhere, and so is whether they fit; the times that choose among the plans are rank 0's.
  const std::vector<int64_t> budgets(static_cast<size_t>(group.size()), budget);
  const StagePlan plan = assign_stages(model.graph(), memory::measure_costs(model, inputs), budgets, options);
  return share_stages(group, model.graph(), plan);
}

}  // namespace ulp::distributed
