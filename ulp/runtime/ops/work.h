// Counting what a step computes and moves (OpDef::work), for ops to say where theirs is another.
#pragma once

#include <cstdint>

#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/plan/step_view.h"
#include "ulp/runtime/plan/step_work.h"

namespace ulp::runtime {

/// All inputs and constants are read, the output is written, and so many operations make an element of it.
StepWork elementwise_work(const StepView& view, int64_t batch, double per_element = 1);
/// One operation an element of the output: what OpDef::work is without another one.
StepWork default_work(const StepView& view, int64_t batch);
/// The same, but an element of the output is made of at most `taps` elements of input 0: others are not read.
StepWork picked_work(const StepView& view, int64_t batch, double taps, double per_element);
/// Each element of the output is one of input 0: nothing is computed.
StepWork copied_work(const StepView& view, int64_t batch);
/// Of a window over input 0 that gives the output: `inner` operations for each place of the window.
StepWork window_work(const StepView& view, int64_t batch, const Window& window, double inner);
/// Each element of input 0 takes part in so many operations.
StepWork reduced_work(const StepView& view, int64_t batch, double per_element);
/// elementwise_work() with so many products, each with its addition, for an element of the output; of the
/// numbers that input 0 holds.
StepWork product_work(const StepView& view, int64_t batch, double products);
/// The kind of products of a type: f32 of all that is neither bf16 nor 8 bits.
kernels::MathType math_of(DataType type);

}  // namespace ulp::runtime
