// The submodule that a graph node can call: one tensor in, one tensor out.
#pragma once

#include <torch/nn/module.h>

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// Observers and fake-quantizers derive from this. torch::nn::Module itself has no virtual forward, so a
/// graph could hold one but not call it.
class ULP_API TensorModule : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

}  // namespace ulp::libtorch
