#include <algorithm>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/distributed/partition.h"
#include "ulp/distributed/stage_calls.h"
#include "ulp/distributed/stage_memory.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/graph/describe.h"

namespace ulp::distributed {

namespace {

using memory::CostTable;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kAsGood = 1.02;  // cuts whose slowest stage is within this are told apart by what crosses

/// The seconds of the calls before each call, and of all.
std::vector<double> seconds_before(const CostTable& table) {
  std::vector<double> sums = {0};
  for (const CostTable::Call& call : table.calls) sums.push_back(sums.back() + call.seconds);
  return sums;
}

/// Where the stages begin whose slowest is the fastest, among those that are `allowed`.
std::vector<int> balanced(const CostTable& table, int stages,
                          FunctionRef<bool(int stage, int begin, int end)> allowed) {
  const std::vector<double> sums = seconds_before(table);
  const auto seconds = [&](int stage, int begin, int end) {
    if (!allowed(stage, begin, end)) return kNever;
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
  };
  const std::vector<int> fastest = best_partition(table.size(), stages, JoinedCost::largest, seconds);
  if (fastest.empty()) return {};
  double slowest = 0;
  for (int s = 0; s < stages; ++s) {
    const int end = s + 1 < stages ? fastest[static_cast<size_t>(s) + 1] : table.size();
    slowest = std::max(slowest, seconds(s, fastest[static_cast<size_t>(s)], end));
  }
  return best_partition(table.size(), stages, JoinedCost::sum, [&](int stage, int begin, int end) {
    if (seconds(stage, begin, end) > slowest * kAsGood) return kNever;
    return static_cast<double>(table.crossing[static_cast<size_t>(begin)]);
  });
}

/// The same, of stages that all have parameters where there are enough layers with some.
std::vector<int> balanced_with_parameters(const CostTable& table, int stages,
                                          FunctionRef<bool(int stage, int begin, int end)> allowed) {
  std::vector<int> before = {0};  // calls that read parameters
  for (const CostTable::Call& call : table.calls)
    before.push_back(before.back() + (call.parameter_bytes > 0));
  if (before.back() < stages) return balanced(table, stages, allowed);
  return balanced(table, stages, [&](int stage, int begin, int end) {
    const bool some = before[static_cast<size_t>(end)] > before[static_cast<size_t>(begin)];
    return some && allowed(stage, begin, end);
  });
}

void fill_in_seconds(StagePlan& plan, const CostTable& table) {
  const std::vector<double> sums = seconds_before(table);
  for (Stage& stage : plan.stages)
    stage.seconds = sums[static_cast<size_t>(table.order.of(stage.last)) + 1] -
                    sums[static_cast<size_t>(table.order.of(stage.first))];
}

/// Says where devices that are filled one after the other end.
[[noreturn]] void does_not_fit(const CostTable& table, const std::vector<int64_t>& budgets,
                               FunctionRef<int64_t(int stage, int begin, int end)> bytes) {
  const int last = static_cast<int>(budgets.size()) - 1;
  int begin = 0;
  for (int stage = 0; stage < last; ++stage) {
    int end = begin;
    while (end < table.size() - (last - stage) &&
           bytes(stage, begin, end + 1) <= budgets[static_cast<size_t>(stage)])
      ++end;
    if (end == begin) {
      fail("distributed.assign_stages", "expected budgets that hold the model, got ",
           budgets[static_cast<size_t>(stage)], " bytes on device ", stage, " for ",
           graph::label(*table.order.calls[static_cast<size_t>(begin)]), ": ",
           bytes(stage, begin, begin + 1) - budgets[static_cast<size_t>(stage)], " bytes are missing");
    }
    begin = end;
  }
  fail("distributed.assign_stages", "expected budgets that hold the model, got ", budgets.back(),
       " bytes on device ", last, " for what the others leave over, from ",
       graph::label(*table.order.calls[static_cast<size_t>(begin)]),
       " on: ", bytes(last, begin, table.size()) - budgets.back(), " bytes are missing");
}

}  // namespace

StagePlan balance_stages(const graph::Graph& graph, const memory::Costs& costs, int stages) {
  const CostTable table(graph, costs);
  check_count("distributed.balance_stages", table.order, stages);
  StagePlan plan =
      plan_of(table.order, balanced_with_parameters(table, stages, [](int, int, int) { return true; }));
  fill_in_seconds(plan, table);
  return plan;
}

StagePlan assign_stages(const graph::Graph& graph, const memory::Costs& costs,
                        const std::vector<int64_t>& budgets, const StageAssignmentOptions& options) {
  const CostTable table(graph, costs);
  const int stages = static_cast<int>(budgets.size());
  check_count("distributed.assign_stages", table.order, stages);
  const StageMemory memory(graph, table, options.optimizer_bytes);
  const auto bytes = [&](int stage, int begin, int end) {
    return memory.bytes(begin, end,
                        micro_batches_held(options.schedule, stage, stages, options.micro_batches));
  };
  const std::vector<int> begins = balanced_with_parameters(table, stages, [&](int stage, int begin, int end) {
    return bytes(stage, begin, end) <= budgets[static_cast<size_t>(stage)];
  });
  if (begins.empty()) does_not_fit(table, budgets, bytes);
  StagePlan plan = plan_of(table.order, begins);
  fill_in_seconds(plan, table);
  for (int s = 0; s < stages; ++s) {
    Stage& stage = plan.stages[static_cast<size_t>(s)];
    stage.bytes = bytes(s, static_cast<int>(table.order.of(stage.first)),
                        static_cast<int>(table.order.of(stage.last)) + 1);
  }
  return plan;
}

}  // namespace ulp::distributed
