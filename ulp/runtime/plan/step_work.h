// What a step has to compute and to move at the least: the numbers of a roofline.
#pragma once

#include "ulp/kernels/peak/math_type.h"

namespace ulp::runtime {

/// Counted from shapes, not measured. Bytes are compulsory traffic: each input, constant and result once,
/// however often a kernel comes back to it, and nothing that it keeps for itself.
struct StepWork {
  kernels::MathType math = kernels::MathType::f32;  ///< the numbers that are multiplied
  double operations = 0;                            ///< a multiplication and an addition are two
  double tensor_bytes = 0;                          ///< of inputs and output
  double constant_bytes = 0;                        ///< of weights

  double bytes() const { return tensor_bytes + constant_bytes; }
};

}  // namespace ulp::runtime
