// Makes a Graph of the runs of a model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/capture/align.h"

namespace ulp::graph {

/// Runs in eval mode at several sizes, and in train mode.
struct Runs {
  SizeGrid grid;  ///< of the batch and the free dimensions
  /// At the example's sizes; with one sample and with two samples more; then at the rest of the grid's
  /// points, and where else the expressions found are to hold: beside the grid, and far from it.
  std::vector<Run> eval;
  size_t near = 0;                     ///< how many of them are not far
  std::vector<int32_t> eval_of_train;  ///< align() of the first run of each mode
  /// With one sample more than the example has; where train mode makes calls of its own, at all sizes near
  /// the example; then at sizes far from it.
  std::vector<Run> train;
  size_t near_train = 0;  ///< how many of them are not far
  /// In eval mode at the first batch size under autocast, where it made the same calls.
  std::optional<Trace> under_autocast;
  /// The same under autocast to bf16, where a call asks for fp32.
  std::optional<Trace> lowered;
};

/// The inputs of a graph.
struct Inputs {
  std::vector<std::string> names;
  std::vector<int64_t> batch_dims;  ///< -1: no batch
  BatchRange batch_range;
  std::vector<DynamicDimension> free;
};

/// A graph, and where it has the calls of the first run of each mode: null for calls that it does without.
struct Built {
  std::shared_ptr<Graph> graph;
  std::vector<const Node*> eval, train;
};

/// The graph that does what the runs did, at any batch size and in both modes.
Built build(const Subject& subject, const Runs& runs, const Inputs& inputs);

}  // namespace ulp::graph
