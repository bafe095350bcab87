// Packing signs as a template over a vector type; included by one file per vector instruction set. Everything has internal
// linkage.
#pragma once

#include "ulp/kernels/binary/sign_kernel.h"

namespace ulp::kernels {
namespace {

template <typename V, bool kThreshold>
void pack_row(const SignArgs& s, const float* x, uint8_t* to) {
  int64_t c = 0;
  const auto vector = [&](int64_t at) __attribute__((always_inline)) {
    const auto threshold = kThreshold ? V::load(s.threshold + at) : V::zero();
    V::store_below(to + at / 8, V::load(x + at), threshold, s.flip == nullptr ? nullptr : s.flip + at / 8);
  };
  for (; c + 4 * V::kLanes <= s.channels; c += 4 * V::kLanes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) vector(c + i * V::kLanes);
  }
  for (; c + V::kLanes <= s.channels; c += V::kLanes) vector(c);
  for (; c < s.channels; c += 8) {
    const int64_t left = s.channels - c;
    to[c / 8] = sign_byte(s, x, c, left < 8 ? left : 8);
  }
}

template <typename V>
void pack(const SignArgs& s) {
  const int64_t bytes = (s.channels + 7) / 8;
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* x = s.x + r * s.channels;
    uint8_t* to = s.bits + r * bytes;
    s.threshold == nullptr ? pack_row<V, false>(s, x, to) : pack_row<V, true>(s, x, to);
  }
}

}  // namespace
}  // namespace ulp::kernels
