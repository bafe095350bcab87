// What the parts of roofline() share; not installed.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ulp/app/roofline.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

/// A captured network and what it takes.
struct RooflineNetwork {
  std::shared_ptr<graph::GraphModule> graph = nullptr;
  std::string name = {};
  bool text = false;
  int64_t tokens = 0;   ///< of texts
  ModelSpec spec = {};  ///< of images
};

/// Opens a model file or makes a reference network with random weights (seed 0). Throws as roofline() does.
RooflineNetwork open_network(const RooflineOptions& options);

/// Random images, or tokens 0, for so many items (seed 0).
at::Tensor random_batch(const RooflineNetwork& network, int64_t batch);

/// Forward and backward passes of a loss, operator by operator: the parts of one step, each with the fastest
/// of its times in options.runs steps.
std::vector<ProfiledPart> profile_training(const RooflineNetwork& network, const RooflineOptions& options);

}  // namespace ulp::app
