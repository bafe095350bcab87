#include "ulp/distributed/pipeline_schedule.h"

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

constexpr const char* kPipelinePassesWhere = "distributed.pipeline_passes";

}  // namespace

int64_t micro_batches_held(PipelineSchedule schedule, int stage, int stages, int64_t micro_batches) {
  if (stages < 1 || stage < 0 || stage >= stages)
    fail(kPipelinePassesWhere, "expected a stage from 0 to ", stages - 1, ", got ", stage);
  if (micro_batches < 1) fail(kPipelinePassesWhere, "expected at least 1 micro-batch, got ", micro_batches);
  if (schedule == PipelineSchedule::gpipe) return micro_batches;
  return std::min<int64_t>(stages - stage, micro_batches);
}

std::vector<PipelinePass> pipeline_passes(PipelineSchedule schedule, int stage, int stages,
                                          int64_t micro_batches) {
  const int64_t held = micro_batches_held(schedule, stage, stages, micro_batches);
  std::vector<PipelinePass> passes;
  for (int64_t i = 0; i < held; ++i) passes.push_back({true, i});
  for (int64_t i = 0; i < micro_batches; ++i) {
    passes.push_back({false, i});
    if (i + held < micro_batches) passes.push_back({true, i + held});
  }
  return passes;
}

}  // namespace ulp::distributed
