// State of layers that stays fp32 in every precision. Internal to the room.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

#include "ulp/base/component.h"

namespace ulp::amp {

/// Finds it in a module.
struct WideState {
  std::vector<at::Tensor> (*tensors)(const torch::nn::Module& module);
};
extern Component<WideState> fp8_state;

}  // namespace ulp::amp
