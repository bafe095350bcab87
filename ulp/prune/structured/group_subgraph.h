// What a network computes behind the channels of one group, to run it again and again with units zeroed.
// Internal to the room.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// A graph cut in two in front of the first nodes whose results change when units of the group are zeroed.
/// The layers that make the channels, and one-to-one functions and batch norms right behind them, are in the
/// first part, as units are zeroed in what they make.
class GroupSubgraph {
 public:
  /// `graph` as strip_training() left it, and its tracker; parameters are shared with it, except those of the
  /// group.
  GroupSubgraph(const graph::Graph& graph, const Tracker& tracker, const Group& group);

  /// What the second part reads of the first for these inputs of the model. Runs the first part.
  std::vector<at::Tensor> boundary(const std::vector<at::Tensor>& inputs);

  /// Begins with all units: of `values`, boundary() for these inputs, only copies are changed.
  void start(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values);
  /// Zeroes one unit more, as zero_units() does.
  void zero(int64_t unit);
  /// The results of the model, flattened in order.
  std::vector<at::Tensor> run();

  /// Nodes of the second part, calls and modules.
  int64_t nodes() const { return nodes_; }

 private:
  /// Where a unit is in a value or a parameter.
  struct Place {
    size_t tensor = 0;  ///< of values_ or of parameters_
    int64_t dim = 0;
    std::vector<std::vector<int64_t>> indices;  ///< of each unit
  };
  class Parts;
  void take_parameters(graph::Graph& second, const Group& group);

  std::unique_ptr<graph::GraphModule> first_, second_;
  std::vector<Place> value_places_, parameter_places_;
  std::vector<at::Tensor> kept_, parameters_;  ///< of the group in the second part: as they were, as they are
  std::vector<at::Tensor> given_;              ///< what the second part runs on
  size_t inputs_ = 0;                          ///< of the model
  int64_t nodes_ = 0;
};

}  // namespace ulp::prune
