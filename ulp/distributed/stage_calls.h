// Stages as numbers of calls; internal to the room.
#pragma once

#include <vector>

#include "ulp/distributed/stage_plan.h"
#include "ulp/memory/checkpoint/call_order.h"

namespace ulp::distributed {

/// The stages that begin at these calls.
StagePlan plan_of(const memory::CallOrder& order, const std::vector<int>& begins);

/// Throws ulp::Error unless the graph has calls for so many stages.
void check_count(const char* where, const memory::CallOrder& order, int stages);

}  // namespace ulp::distributed
