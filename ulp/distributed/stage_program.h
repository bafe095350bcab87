// What one stage of a pipeline runs, and what it takes from the stage before and gives to the one behind; internal to
// the room.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/distributed/stage_plan.h"
#include "ulp/graph/graph_module.h"

namespace ulp::distributed {

/// A value that a stage has.
struct StageValue {
  enum class Origin : uint8_t {
    input,     ///< of the model: every process has them
    received,  ///< from the stage before
    made       ///< a result of the stage's module
  };
  Origin origin = Origin::input;
  size_t index = 0;
};

struct StageProgram {
  std::shared_ptr<graph::GraphModule> module;  ///< its tensors are the model's
  std::vector<StageValue> inputs;              ///< of the module
  size_t received = 0;                         ///< tensors that come from the stage before
  std::vector<bool> passed_on;                 ///< of each of them: the next stage gets it, too
  std::vector<StageValue> results;  ///< what the next stage receives; of the last stage the model's result
};

/// One for each stage of the plan. Values that go further than one stage are passed on from stage to stage. Throws
/// ulp::Error for a plan of another graph, and for graphs as check_can_be_cut().
std::vector<StageProgram> stage_programs(const graph::GraphModule& model, const StagePlan& plan);

}  // namespace ulp::distributed
