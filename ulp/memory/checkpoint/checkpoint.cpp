#include "ulp/memory/checkpoint/checkpoint.h"

#include "ulp/memory/checkpoint/executor.h"

namespace ulp::memory {

void checkpoint(graph::GraphModule& module, CheckpointPlan plan) {
  const bool empty = plan.segments.empty() && plan.formats.empty() && !plan.saved.active();
  module.run_with(empty ? nullptr : std::make_shared<CheckpointExecutor>(std::move(plan)));
}

}  // namespace ulp::memory
