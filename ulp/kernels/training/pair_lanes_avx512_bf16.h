// Vectors of AVX-512 whose multiply-add is that of pairs of bf16: vdpbf16ps, sum + the product of the upper halves, then + that
// of the lower ones, each rounded once. Everything here has internal linkage.
#pragma once

#include "ulp/kernels/training/product_lanes_avx512.h"

namespace ulp::kernels {
namespace {

struct PairLanes : ProductLanes {
  static F fma(F a, F b, F c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace
}  // namespace ulp::kernels
