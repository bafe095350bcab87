// The small network whose checkpoints are fuzzed.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <memory>
#include <string>

#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/io/checkpoint.h"

namespace ulp::fuzz {

/// A linear layer with an optimizer of one of the kinds that checkpoints know.
struct CheckpointNet {
  torch::nn::Linear model{3, 2};
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  /// `kind` as CheckpointInfo::optimizer says it; SGD for any other word.
  explicit CheckpointNet(const std::string& kind) {
    const std::vector<at::Tensor> parameters = model->parameters();
    if (kind == "Adam") {
      optimizer = std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions().amsgrad(true));
    } else if (kind == "AdamW") {
      optimizer = std::make_unique<torch::optim::AdamW>(parameters);
    } else if (kind == "ulp::amp::FusedOptimizer") {
      optimizer = std::make_unique<amp::FusedOptimizer>(parameters, amp::AdamWRule{});
    } else {
      optimizer =
          std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
    }
  }
  io::CheckpointParts parts() {
    return {.model = model.get(), .optimizer = optimizer.get(), .random_state = false};
  }
  /// A step with gradients of ones, so that the optimizer has a state.
  void train() {
    for (at::Tensor parameter : model->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    optimizer->step();
  }
};

}  // namespace ulp::fuzz
