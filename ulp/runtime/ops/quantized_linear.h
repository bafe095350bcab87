// The linear op on f32 inputs with coded weights: unpacked as they are used.
#pragma once

#include <memory>
#include <vector>

#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {

/// True for an f32 input and a weight in codes.
bool is_coded_linear(const StepView& view);
std::vector<int64_t> infer_coded_linear(const StepView& view);
std::unique_ptr<Runner> prepare_coded_linear(const StepView& view, kernels::Isa isa);

}  // namespace ulp::runtime
