// Makes a Graph of the runs of a model.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/capture/align.h"

namespace ulp::graph {

/// Runs in eval mode at three batch sizes (the first is the example's), and in train mode.
struct Runs {
  std::array<Run, 3> eval;
  std::vector<int32_t> eval_of_train;  ///< align() of the first run of each mode
  /// One, or three at three batch sizes where train mode makes calls of its own.
  std::vector<Run> train;
  /// In eval mode at the first batch size under autocast, where it made the same calls.
  std::optional<Trace> under_autocast;
};

/// The inputs of a graph.
struct Inputs {
  std::vector<std::string> names;
  std::vector<int64_t> batch_dims;  ///< -1: no batch
};

/// A graph, and where it has the calls of the first run of each mode: null for calls that it does without.
struct Built {
  std::shared_ptr<Graph> graph;
  std::vector<const Node*> eval, train;
};

/// The graph that does what the runs did, at any batch size and in both modes.
Built build(const Subject& subject, const Runs& runs, const Inputs& inputs);

}  // namespace ulp::graph
