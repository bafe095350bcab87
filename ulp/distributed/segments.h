// A captured model cut into pieces that run one after the other, each a module of its own; internal to the
// room.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ulp/graph/graph_module.h"

namespace ulp::distributed {

/// One piece. Values that pass between pieces have numbers.
struct Segment {
  std::shared_ptr<graph::GraphModule> module;  ///< its tensors are the model's
  std::vector<size_t> inputs, results;
  std::vector<size_t> last_reads;      ///< values that no later piece reads
  std::vector<at::Tensor> parameters;  ///< that it reads and that require gradients, each once
};

class Segments {
 public:
  /// Pieces of consecutive nodes, each of which reads at least `bytes` of parameters that none before it has
  /// read (the last may have less). Throws ulp::Error for a model with free dimensions beside the batch, or
  /// with another result than one tensor.
  Segments(const graph::GraphModule& model, int64_t bytes);

  const std::vector<Segment>& all() const { return segments_; }

  /// Called with the number of a piece, before it runs, and with its results after it.
  using Before = std::function<void(size_t segment)>;
  using After = std::function<void(size_t segment, const std::vector<at::Tensor>& results)>;
  /// The model's result, in the mode that the model has now.
  at::Tensor run(const std::vector<at::Tensor>& inputs, const Before& before, const After& after) const;

 private:
  void add(const std::vector<const graph::Node*>& nodes);
  size_t slot(const graph::Value* value);
  void free_early();

  const graph::GraphModule& model_;
  std::vector<Segment> segments_;
  std::vector<const graph::Value*> values_;  // by slot
  std::vector<size_t> inputs_;
  size_t result_ = 0;
};

}  // namespace ulp::distributed
