// What layers of a graph read while calibration batches run, one layer after the other. Internal.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/graph/capture/program.h"
#include "ulp/graph/graph.h"
#include "ulp/quant/weights/calibrated_weights.h"

namespace ulp::quant {

/// Runs a graph in eval mode up to a layer, then to the next one, with weights that may be replaced in
/// between. Every op runs once for each batch, and values that later ops need are kept; or, with `recompute`,
/// nothing is kept, and each look runs all batches from the start.
class LayerInputs {
 public:
  LayerInputs(const graph::Graph& graph, const CalibrationData& data, bool recompute);

  /// Calls `use` with the layer's input in each batch. Layers come in order of execution. With `before`, the
  /// name of a node behind the one that makes the input, no step from that node on has run by then.
  void look(const graph::Node& layer, FunctionRef<void(const at::Tensor& input)> use,
            const std::string& before = {});

  /// What reads this weight, or its codes, from now on, reads these numbers.
  void replace(const std::string& weight, const at::Tensor& values);

 private:
  void run(graph::Program::Frame& frame, size_t from, size_t to) const;
  graph::Program::Frame start(const std::vector<at::Tensor>& inputs) const;
  void release(size_t step);

  std::shared_ptr<graph::Graph> graph_;  ///< with tensors of its own in front of the model's memory
  std::unordered_map<std::string, at::Tensor> weights_;
  std::unordered_map<std::string, size_t> last_read_;  ///< of a weight: the last step that does
  std::vector<std::string> replaced_ = {};
  std::shared_ptr<const graph::Program> program_;
  std::unordered_map<std::string, size_t> steps_;  ///< by name of the node
  const CalibrationData& data_;
  bool recompute_, started_ = false;
  size_t done_ = 0;  ///< steps that all frames have run
  std::vector<graph::Program::Frame> frames_ = {};
};

}  // namespace ulp::quant
