// Convolutions that follow each other and run as one step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/step_range.h"

namespace ulp::runtime {

/// A depthwise convolution, or one without groups whose window is larger than 1x1, with the 1x1 convolution behind it, and the
/// one before it if there is one: all such steps of a plan, in order and apart from each other. Each but the first reads what
/// the one before writes, and nobody else does.
ULP_API std::vector<StepRange> find_conv_blocks(const Plan& plan);

/// Runs the steps as one: input 0 is that of the first step, input 1 the residual of the last one if it has
/// one. Null where they run step by step: the rules say so, what lies between them stays in the cache anyway,
/// one by one they were faster, or this instruction set has no kernel for it. DepthFirst::measure runs both
/// ways on one synthetic image on the calling thread, unless the table knows them or more than twice the
/// second-level cache lies between two layers. Blocks around a dense layer run with DepthFirst::always alone.
std::unique_ptr<Runner> prepare_conv_block(std::span<const StepView> views, kernels::Isa isa);

}  // namespace ulp::runtime
