// Shapes of convolutions for tests.
#pragma once

#include <cstdint>

#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels::test {

/// Square images and kernels.
inline ConvShape conv_shape(int64_t hw, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t pad,
                            int64_t dilation = 1, int64_t groups = 1) {
  return {hw, hw, in, out, k, k, stride, stride, pad, pad, dilation, dilation, groups};
}

}  // namespace ulp::kernels::test
