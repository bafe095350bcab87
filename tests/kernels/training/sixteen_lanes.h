// The products of a training step on emulated vectors of 16 numbers, as AVX-512 has them.
#pragma once

#include "ulp/kernels/training/conv_products_ops.h"
#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels::test {

const LayerProductOps& sixteen_lane_products();
const ConvProductOps& sixteen_lane_convs();

}  // namespace ulp::kernels::test
