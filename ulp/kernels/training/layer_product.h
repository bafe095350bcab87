// Products of the small matrices of a training step: a layer's forward and both of its backward products, without
// packing, scratch memory or other threads.
//
// A linear layer y = x W^T + b with W [out, in] is made of three of them: y with W transposed once a step, dx = dy W,
// and dW = dy^T x, whose left side is read column by column.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const LayerProductOps& layer_product_ops(Isa isa);

}  // namespace ulp::kernels
