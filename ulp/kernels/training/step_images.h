// Loops over images that lie channels-last, for compiled training steps: batch norm, pooling, and other
// orders of their numbers.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/step_images_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const StepImageOps& step_image_ops(Isa isa);

}  // namespace ulp::kernels
