// The steps of the road, each tried on a copy of a model. Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/app/check/road_report.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

/// What a step is given: the model, and what it runs on.
struct RoadSetting {
  const graph::GraphModule& model;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> results;  ///< of the model in eval mode; empty where it does not run
};

/// What a step came to when it worked.
struct RoadOutcome {
  std::string says;
  std::vector<std::string> left = {};
};

/// A goal and what tries it. What stands in the way is thrown.
struct RoadTrial {
  RoadGoal goal;
  std::function<RoadOutcome(const RoadSetting&)> attempt;
};

/// All of them, in the order of the road.
const std::vector<RoadTrial>& road_trials();

/// Training in every precision that the CPU has.
std::vector<RoadTrial> training_trials();
/// Quantization-aware training, pruning of channels, and distillation.
std::vector<RoadTrial> change_trials();

/// A copy whose tensors are its own, in eval mode.
std::shared_ptr<graph::GraphModule> own_copy(const RoadSetting& setting);
/// Runs an engine of the model; throws ulp::Error where its results are not numbers. `exact`: or not the
/// model's.
RoadOutcome tried_engine(const RoadSetting& setting, graph::GraphModule& model, bool bf16, bool exact);
/// Throws ulp::Error unless every element of every floating result is finite.
void expect_finite(const std::vector<at::Tensor>& results, const char* what);
/// A scalar that depends on all floating results: the sum of their mean squares, in fp32. Throws ulp::Error
/// where none depends on a parameter, and where it is not finite.
at::Tensor road_loss(const std::vector<at::Tensor>& results);

/// Inputs for the model: random numbers, ids and flags with which it runs and gives finite results, else the
/// first that were made.
std::vector<at::Tensor> road_inputs(graph::GraphModule& model, int64_t batch);

}  // namespace ulp::app
