// The kernel that looks bits up, as a template over a vector type; included by one file per vector instruction set after
// its vector type. Everything has internal linkage.
//
// V::kOutputs: 16 for each 32 bytes of a vector. V::look_up(table, nibbles): bytes of the tables at these places.
// V::add_bytes(counts, v, first): the low and the high half of each output's count, added to what is there but for the first.
#pragma once

#include "ulp/kernels/binary/binary_epilogue.h"

namespace ulp::kernels {
namespace {

/// One byte of the input of M pixels times NB panels.
template <typename V, int M, int NB>
inline __attribute__((always_inline)) void nibble_step(typename V::I (&acc)[M][NB], const BitCounts* counts,
                                                       const uint8_t* const* rows, int64_t step,
                                                       const uint8_t* const* panels, int64_t offset) {
  typename V::I table[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) table[m] = V::load_table(counts->of[rows[m / 3][(m % 3) * step + offset]]);
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) {
    const typename V::I weights = V::load(panels[n] + offset * V::kBytes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[m][n] = V::add(acc[m][n], V::look_up(table[m], weights));
  }
}

template <typename V, int M, int NB>
void nibble_tile(const BinaryTileArgs& t) {
  constexpr int64_t kWidth = NB * V::kOutputs;
  constexpr int64_t kMostSteps = 63;    // of at most 4 each, in a byte
  constexpr int kGroups = (M + 2) / 3;  // a base register for three pixels
  alignas(64) int32_t counts[M * kWidth];
  bool first = true;
  typename V::I acc[M][NB];
  const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < NB; ++n) acc[m][n] = V::zero();
    }
  };
  const auto flush = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < NB; ++n) V::add_bytes(counts + m * kWidth + n * V::kOutputs, acc[m][n], first);
    }
    first = false;
  };
  clear();
  const uint8_t* panels[NB];
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) panels[n] = t.b + n * t.b_panel;
  const int64_t step = t.a_step;
  int64_t room = kMostSteps;
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const uint8_t* rows[kGroups];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) rows[g] = t.a + t.taps[tap] + 3 * g * step;
    const auto advance = [&](int64_t bytes) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        rows[g] += bytes;
        __asm__("" : "+r"(rows[g]));  // or the compiler keeps a pointer for every pixel
      }
#pragma GCC unroll 4
      for (int n = 0; n < NB; ++n) panels[n] += bytes * V::kBytes;
    };
    int64_t left = t.tap_bytes;
    while (left > 0) {
      int64_t now = left < room ? left : room;
      left -= now;
      room -= now;
      for (; now >= 4; now -= 4) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) nibble_step<V, M, NB>(acc, t.table, rows, step, panels, i);
        advance(4);
      }
      for (; now > 0; --now) {
        nibble_step<V, M, NB>(acc, t.table, rows, step, panels, 0);
        advance(1);
      }
      if (room > 0) continue;
      flush();
      clear();
      room = kMostSteps;
    }
  }
  flush();
  finish_counts<V>(counts, M, kWidth, t);
}

// clang-format off
#define ULP_NIBBLES_2(V, NB) nullptr, nibble_tile<V, 1, NB>, nibble_tile<V, 2, NB>
#define ULP_NIBBLES_4(V, NB) ULP_NIBBLES_2(V, NB), nibble_tile<V, 3, NB>, nibble_tile<V, 4, NB>
#define ULP_NIBBLES_8(V, NB) ULP_NIBBLES_4(V, NB), nibble_tile<V, 5, NB>, nibble_tile<V, 6, NB>, \
                             nibble_tile<V, 7, NB>, nibble_tile<V, 8, NB>
// clang-format on

}  // namespace
}  // namespace ulp::kernels
