// Softmax of one row, in 16 lanes on every instruction set. For files that define ULP_VECTOR_BYTES; everything here has
// internal linkage.
#pragma once

#include "ulp/kernels/isa/lanes.h"

namespace ulp::kernels {
namespace {

/// exp(x[i] - largest) for 16 elements from `at` on, 0 for those behind the end.
template <typename T>
inline __attribute__((always_inline)) void load_exp(Lanes& to, const T* x, int64_t at, int64_t n,
                                                    float largest) {
  const int64_t left = n - at;
  if (left >= Lanes::kCount) {
    load(to, x + at);
    return exp_below(to, largest);
  }
  fill(to, largest);
  load_first(to, x + at, left);
  exp_below(to, largest);
  keep_first(to, left);
}

template <typename T>
float largest_in(const T* x, int64_t n) {
  Lanes largest, part;
  fill(largest, -__builtin_inff());
  int64_t at = 0;
  for (; at + Lanes::kCount <= n; at += Lanes::kCount) {
    load(part, x + at);
    take_larger(largest, part);
  }
  if (at < n) {
    part = largest;
    load_first(part, x + at, n - at);
    take_larger(largest, part);
  }
  return largest_of(largest);
}

template <typename T>
void softmax_row(const T* x, T* y, int64_t n) {
  constexpr int64_t kBlock = 128;  // exponentials that a row keeps from one pass to the next
  const float largest = largest_in(x, n);
  float block[kBlock];
  Lanes sums, part;
  fill(sums, 0.0F);
  for (int64_t at = 0; at < n; at += Lanes::kCount) {
    load_exp(part, x, at, n, largest);
    add(sums, part);
    if (n <= kBlock) store(block + at, part);
  }
  const float inverse = 1.0F / sum_of(sums);
  for (int64_t at = 0; at < n; at += Lanes::kCount) {
    n <= kBlock ? load(part, block + at) : load_exp(part, x, at, n, largest);
    scale(part, inverse);
    n - at >= Lanes::kCount ? store(y + at, part) : store_first(y + at, part, n - at);
  }
}

}  // namespace
}  // namespace ulp::kernels
