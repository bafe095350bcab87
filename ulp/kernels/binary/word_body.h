// The kernel that counts bits of words, as a template over a vector type; included by one file per instruction set after its
// vector type. Everything has internal linkage.
//
// V: 8 words. V::count(a, b): how many bits of each differ.
#pragma once

#include "ulp/kernels/binary/binary_epilogue.h"

namespace ulp::kernels {
namespace {

template <typename V, int M>
void word_tile(const BinaryTileArgs& t) {
  constexpr int kVectors = 2;  // 16 outputs
  typename V::I acc[M][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[m][v] = V::zero();
  }
  const uint8_t* b = t.b;
  for (int64_t at = 0; at < t.tap_bytes; at += 8, b += kPanelOutputs * 8) {
    const typename V::I low = V::load(b), high = V::load(b + 64);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const typename V::I a = V::broadcast(t.a + m * t.a_step + at);
      acc[m][0] = V::add(acc[m][0], V::count(a, low));
      acc[m][1] = V::add(acc[m][1], V::count(a, high));
    }
  }
  alignas(64) int32_t counts[M * kPanelOutputs];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) V::store_low(counts + m * kPanelOutputs + v * 8, acc[m][v]);
  }
  finish_counts<V>(counts, M, kPanelOutputs, t);
}

// clang-format off
#define ULP_WORDS(V) {{nullptr, word_tile<V, 1>, word_tile<V, 2>, word_tile<V, 3>, word_tile<V, 4>, \
                       word_tile<V, 5>, word_tile<V, 6>, word_tile<V, 7>, word_tile<V, 8>}, {}, {}}
// clang-format on

}  // namespace
}  // namespace ulp::kernels
