// Which calls of a captured graph run in which process of a pipeline: cut by a balance of measured times, or placed by
// what each device has of memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distributed/pipeline_schedule.h"
#include "ulp/distributed/process_group.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/plan.h"

namespace ulp::distributed {

/// Consecutive calls in order of execution.
struct Stage {
  const graph::Node* first = nullptr;
  const graph::Node* last = nullptr;  ///< is in it
  double seconds = 0;                 ///< of the forward passes of its calls
  int64_t bytes = 0;                  ///< that it is predicted to need in training; 0 where nobody asked
};

/// Stages in order; together they are all calls of the graph.
struct StagePlan {
  std::vector<Stage> stages;
};

/// Where each stage begins and ends: "stage 0: conv1 to layer2.1.relu, 1.25 ms, 13107200 bytes".
ULP_API std::vector<std::string> describe_stages(const StagePlan& plan);

/// The numbers of the calls that the stages begin with, from 0 in order of execution, and of all calls: a plan as numbers.
ULP_API std::vector<int64_t> stage_numbers(const graph::Graph& graph, const StagePlan& plan);
/// The plan that they describe, without times and bytes; one without stages where they do not fit the graph.
ULP_API StagePlan stages_of_numbers(const graph::Graph& graph, const std::vector<int64_t>& numbers);

/// Throws ulp::Error naming the call unless the stages are all calls of this graph in order.
ULP_API void check_stages(const graph::Graph& graph, const StagePlan& plan);

/// So many stages of which the slowest takes the least time. Among cuts within 2 % of that, those where the fewest bytes
/// cross. The backward passes are taken to cost the same multiple of the forward everywhere. Throws ulp::Error for fewer
/// calls than stages.
ULP_API StagePlan balance_stages(const graph::Graph& graph, const memory::Costs& costs, int stages);

/// The memory that a training step keeps beside one micro-batch's activations.
struct StageAssignmentOptions {
  /// Bytes of the optimizer for each byte of trained parameters, beside their gradients: 2 for Adam, 1 for momentum.
  double optimizer_bytes = 2;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int64_t micro_batches = 4;
};

/// A stage for each budget, in bytes, that fits in it, balanced as above. `costs` are those of one micro-batch. A stage
/// needs its parameters, their gradients and the optimizer's state, what its backward passes read of the micro-batches
/// that it holds at once, and the gradients of activations at the worst moment of a backward. Throws ulp::Error when
/// the budgets do not hold the model: where the last one ends, and how many bytes are missing.
ULP_API StagePlan assign_stages(const graph::Graph& graph, const memory::Costs& costs,
                                const std::vector<int64_t>& budgets,
                                const StageAssignmentOptions& options = {});

/// Sends the plan of rank 0 to every rank, as measured times differ. Rank 0 gives the plan, others may leave
/// theirs empty.
ULP_API StagePlan share_stages(ProcessGroup& group, const graph::Graph& graph, const StagePlan& plan);

/// balance_stages() for the processes of a group, by times that rank 0 measures on these inputs (a micro-batch).
ULP_API StagePlan measured_stages(ProcessGroup& group, const graph::GraphModule& model,
                                  const std::vector<at::Tensor>& inputs);
/// assign_stages() for them, each with a budget of so many bytes. Every rank throws what assign_stages()
/// throws.
ULP_API StagePlan measured_stages(ProcessGroup& group, const graph::GraphModule& model,
                                  const std::vector<at::Tensor>& inputs, int64_t budget,
                                  const StageAssignmentOptions& options);

}  // namespace ulp::distributed
