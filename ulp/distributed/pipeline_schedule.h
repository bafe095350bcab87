// In which order a stage of a pipeline runs the forward and backward passes of its micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::distributed {

/// Both leave each stage idle for (stages - 1) / (micro-batches + stages - 1) of a step; they differ in memory.
enum class PipelineSchedule : uint8_t {
  gpipe,  ///< all forward passes, then all backward passes (Huang et al., arXiv:1811.06965)
  one_forward_one_backward,  ///< in turns (Narayanan et al., arXiv:1806.03377): the default
};

/// One pass of one micro-batch.
struct PipelinePass {
  bool forward = true;
  int64_t micro_batch = 0;
  bool operator==(const PipelinePass&) const = default;
};

/// Lists the passes of stage `stage` of `stages` in one step. Backward passes come in the order of the
/// micro-batches, so that gradients are added up as by one process that accumulates. Throws ulp::Error for
/// numbers without sense.
ULP_API std::vector<PipelinePass> pipeline_passes(PipelineSchedule schedule, int stage, int stages,
                                                  int64_t micro_batches);

/// The most micro-batches whose activations the stage holds at once.
ULP_API int64_t micro_batches_held(PipelineSchedule schedule, int stage, int stages, int64_t micro_batches);

}  // namespace ulp::distributed

template <>
struct ulp::EnumNames<ulp::distributed::PipelineSchedule> {
  using enum distributed::PipelineSchedule;
  static constexpr std::array<Word<distributed::PipelineSchedule>, 2> list = {
      {{gpipe, "gpipe", "all forward passes, then all backward passes"},
       {one_forward_one_backward, "1f1b", "one forward, one backward in turns: fewer activations are held"}}};
};
