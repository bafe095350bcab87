// Computes the norm of the gradients of all ranks, where each has a part of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/base/export.h"
#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

/// The sum over the ranks of their gradients' squares and numbers, undefined ones left out: on every rank the same bits.
/// As amp::FusedStepOptions::measure it gives all ranks one norm and one verdict. All ranks call it, each with
/// gradients that no other counts (Pipeline::own_parameters(), TensorParallel::own_parameters()).
ULP_API amp::GradientTotal total_gradients(ProcessGroup& group, const std::vector<at::Tensor>& parameters);

}  // namespace ulp::distributed
