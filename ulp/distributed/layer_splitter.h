// The pass of TensorParallel: finds layers that can be split together, and splits them; internal to the room.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ulp/distributed/process_group.h"
#include "ulp/distributed/split.h"
#include "ulp/distributed/split_rules.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::distributed {

class LayerSplitter {
 public:
  LayerSplitter(graph::Graph& graph, std::shared_ptr<ProcessGroup> group, graph::PassReport& report);

  /// Layers that feed others, those of `skipped` left alone.
  void split_layers(const std::set<const graph::Node*>& skipped);
  /// Tables of embeddings with so many rows or more, and the layer of the result. Gives the split of the result if it
  /// stays in parts.
  std::optional<Split> split_vocabulary(const std::set<const graph::Node*>& skipped, int64_t least,
                                        bool gather);

  /// Behind both: what stays whole, and why.
  void report_whole();

  const std::vector<NamedSplit>& splits() const { return splits_; }

 private:
  /// A stored matrix that a layer reads, as it is or transposed.
  struct Matrix {
    std::string name;
    int64_t out_dim = 0;  ///< which dimension of it are the layer's outputs
  };
  struct Layer {
    graph::Node* node;
    Matrix weight;
    Split split;  ///< of its outputs or inputs, along the last dimension
  };
  struct Region {
    SplitFlow flow;
    std::vector<Layer> columns = {}, rows = {};
    std::vector<graph::Node*> random = {};  ///< calls that draw random numbers for parts
  };

  /// What makes the input of a layer: layers, and all values on the way from them.
  struct Before {
    std::vector<graph::Node*> layers;
    std::set<const graph::Value*> between;
  };

  /// Nothing for a layer whose matrix others read, too.
  std::optional<Matrix> matrix_of(const graph::Node& layer) const;
  Before layers_before(const graph::Node& row) const;
  std::string grow(Region& region) const;
  std::string try_split(graph::Node* row, const std::set<const graph::Node*>& skipped);
  std::string make_region(const std::vector<graph::Node*>& columns, int64_t width, int64_t units,
                          Region& region) const;
  void apply(Region& region);
  void split_attribute(const std::string& name, const Split& split);
  void split_embedding(graph::Node* node, const Split& rows);
  void split_column(const Layer& layer, std::vector<std::pair<graph::Value*, graph::Value*>>& entered);
  void split_row(const Layer& layer);
  graph::Value* insert(std::shared_ptr<libtorch::TensorModule> module, graph::Value* input,
                       graph::Node* before);

  graph::Graph& graph_;
  std::shared_ptr<ProcessGroup> group_;
  graph::PassReport& report_;
  std::vector<NamedSplit> splits_;
  std::set<const graph::Node*> done_;
  std::vector<std::pair<const graph::Node*, std::string>> whole_;
  int modules_ = 0;
};

}  // namespace ulp::distributed
