// The pieces of bench_amp; not installed.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>

#include "ulp/app/bench/bench_amp.h"
#include "ulp/graph/graph_module.h"

namespace ulp::app {

/// Made-up samples that a network can learn.
struct AmpBatch {
  at::Tensor inputs;   ///< float images, or int64 tokens
  at::Tensor targets;  ///< int64
};

/// What is trained: how to make the network and its data.
struct AmpWorkload {
  std::string shape;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<at::Tensor(torch::nn::Module&, const at::Tensor&)> forward;
  /// The model as a graph, for precisions that replace its layers.
  std::function<std::shared_ptr<graph::GraphModule>(torch::nn::Module&, const at::Tensor& inputs)> capture;
  std::vector<AmpBatch> batches;  ///< taken in turn
  double learning_rate = 1e-3;    ///< of AdamW
};

AmpWorkload make_workload(AmpNetwork network, const AmpBenchOptions& options);

}  // namespace ulp::app
