// What the parts of roofline() share; not installed.
#pragma once

#include <memory>
#include <vector>

#include "ulp/app/roofline/roofline.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

/// A captured network with what it takes and learns from.
struct RooflineNetwork {
  Workload model;
  train::Task task;  ///< of batches of options.batch
  std::shared_ptr<graph::GraphModule> graph;
};

/// Opens a model file or makes a network of that name with random weights (seed 0), captured in eval mode.
/// Throws as roofline() does.
RooflineNetwork open_network(const RooflineOptions& options);

/// Forward and backward passes of a loss, operator by operator: the parts of one step, each with the fastest
/// of its times in options.runs steps.
std::vector<ProfiledPart> profile_training(RooflineNetwork& network, const RooflineOptions& options);

}  // namespace ulp::app
