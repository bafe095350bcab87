// Choosing a table of small operations and filling their arguments; internal to the room.
#pragma once

#include "ulp/kernels/elementwise/small_ops.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

const SmallOps& small_ops(Isa isa);
/// Throws ulp::Error unless `type` is f32, bf16 or u8.
void check_small_type(const char* where, DataType type);
/// Arguments of a u8 operation with one or two inputs; the bounds are in units of y's scale.
ElementwiseArgs u8_args(Activation activation, Affine a, Affine b, Affine y);

}  // namespace ulp::kernels
