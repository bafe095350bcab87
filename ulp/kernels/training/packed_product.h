// Products of packed matrices for compiled training steps, in f32 or of numbers rounded to bf16.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/packed_product_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times. `bf16`: both sides are rounded to it;
/// then the machine's products of pairs are taken where they are the faster way. Bits do not depend on that, but for
/// sums and products below 2^-126, which those products take for zero.
ULP_API const PackedProductOps& packed_product_ops(Isa isa, bool bf16);

}  // namespace ulp::kernels
