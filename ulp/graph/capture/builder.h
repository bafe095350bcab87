// Makes a Graph of the runs of a model.
#pragma once

#include <array>
#include <memory>

#include "ulp/graph/capture/align.h"

namespace ulp::graph {

/// Runs in eval mode at three batch sizes (the first is the example's) and one in train mode.
struct Runs {
  std::array<Run, 3> eval;
  Run train;
};

/// The graph that does what the runs did, at any batch size and in both modes.
std::shared_ptr<Graph> build(const Subject& subject, const Runs& runs,
                             const std::vector<int64_t>& batch_dims);

}  // namespace ulp::graph
