// What a call of an ATen op computes and moves, counted from its tensors; not installed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/runtime/plan/step_work.h"

namespace ulp::app {

/// A call that has returned.
struct CalledOp {
  std::string op;                   ///< "aten::conv2d"
  std::vector<at::Tensor> inputs;   ///< defined tensors, in order
  std::vector<at::Tensor> outputs;  ///< likewise
  bool causal = false;              ///< attention: half of the scores are not computed
  bool in_place = false;            ///< an output is an input
};

/// Products are counted of convolutions, linear layers, matrix products, attention and recurrent layers and
/// of their backward ops; anything else is an operation for each element of its largest tensor. Tensors are
/// read or written once; what an op only looks at in another way (a view) has no work.
ULP_API runtime::StepWork work_of(const CalledOp& call);

}  // namespace ulp::app
