// Tiles on instructions that multiply two rows of 8 bytes by two columns of as many, a matrix of 2 x 2 sums, as templates
// over such a product; included by one file per instruction set after its vector type of 16 bytes. Everything has internal
// linkage.
//
// Matrix: the sums of tile_body.h, and
//   product(sums, a, b)   the instruction;
//   first(x, y), second(x, y)   the lower halves of two vectors of sums, and the upper ones.
// Units have 8 bytes; a panel is four channels, two vectors a unit.
#pragma once

#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

inline __attribute__((always_inline)) int32x4_t lower_halves(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
inline __attribute__((always_inline)) int32x4_t upper_halves(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

/// One unit: each pair of pixels times each pair of channels.
template <typename Matrix, int kPairs, int NB>
inline __attribute__((always_inline)) void matrix_step(typename Matrix::Acc (&block)[kPairs][2 * NB],
                                                       const int32x4_t (&pair)[kPairs],
                                                       const uint8_t* const* panels, int64_t offset) {
#pragma GCC unroll 8
  for (int v = 0; v < 2 * NB; ++v) {
    const int32x4_t b = VecNeon::loadi(panels[v / 2] + offset + v % 2 * 16);
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) block[p][v] = Matrix::product(block[p][v], pair[p], b);
  }
}

template <typename Matrix, int M, int NB>
void matrix_tile(const TileArgs& t) {
  constexpr int kPairs = (M + 1) / 2, kGroups = (M + 2) / 3, kUnit = 8, kPanelUnit = VecNeon::kLanes * kUnit;
  typename Matrix::Acc acc[M][NB], block[kPairs][2 * NB];
  start_sums<Matrix, M, NB>(acc, t);
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) {
      block[p][2 * n] = Matrix::first(acc[0][n], acc[0][n]);
      block[p][2 * n + 1] = Matrix::second(acc[0][n], acc[0][n]);
    }
  }
  const int64_t step = t.a_step;
  const uint8_t* panels[NB];
  begin_panels(panels, t);
  const uint8_t* ahead = t.ahead;
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const uint8_t* rows[kGroups];
    begin_rows(rows, t, tap);
    // The last pixel of an odd number passes twice.
    const auto pixel = [&](int m) __attribute__((always_inline)) {
      const int own = m < M ? m : M - 1;
      return rows[own / 3] + own % 3 * step;
    };
    int64_t left = t.tap_units;
    for (; left >= 2; left -= 2) {
      int32x4_t low[kPairs], high[kPairs];
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) {
        const int32x4_t even = VecNeon::loadi(pixel(2 * p)), odd = VecNeon::loadi(pixel(2 * p + 1));
        low[p] = lower_halves(even, odd);
        high[p] = upper_halves(even, odd);
      }
      matrix_step<Matrix, kPairs, NB>(block, low, panels, 0);
      matrix_step<Matrix, kPairs, NB>(block, high, panels, kPanelUnit);
      __builtin_prefetch(ahead, 0, 2);  // into the second level
      ahead += 64;
      advance(rows, panels, 2 * kUnit, 2 * kPanelUnit);
    }
    if (left > 0) {
      int32x4_t pair[kPairs];
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) {
        pair[p] = vreinterpretq_s32_u8(vcombine_u8(vld1_u8(pixel(2 * p)), vld1_u8(pixel(2 * p + 1))));
      }
      matrix_step<Matrix, kPairs, NB>(block, pair, panels, 0);
      advance(rows, panels, kUnit, kPanelUnit);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) {
      const typename Matrix::Acc x = block[m / 2][2 * n], y = block[m / 2][2 * n + 1];
      acc[m][n] = m % 2 == 0 ? Matrix::first(x, y) : Matrix::second(x, y);
    }
  }
  finish_sums<Matrix, M, NB>(acc, t);
}

// clang-format off
#define ULP_MATRICES_6(Matrix, NB) nullptr, matrix_tile<Matrix, 1, NB>, matrix_tile<Matrix, 2, NB>, matrix_tile<Matrix, 3, NB>, \
                                   matrix_tile<Matrix, 4, NB>, matrix_tile<Matrix, 5, NB>, matrix_tile<Matrix, 6, NB>
#define ULP_MATRICES_12(Matrix, NB) ULP_MATRICES_6(Matrix, NB), matrix_tile<Matrix, 7, NB>, matrix_tile<Matrix, 8, NB>, \
                                    matrix_tile<Matrix, 9, NB>, matrix_tile<Matrix, 10, NB>, matrix_tile<Matrix, 11, NB>, \
                                    matrix_tile<Matrix, 12, NB>
#define ULP_MATRICES(Matrix) {{ULP_MATRICES_12(Matrix, 1)}, {ULP_MATRICES_6(Matrix, 2)}, {ULP_MATRICES_6(Matrix, 4)}}
// clang-format on

}  // namespace
}  // namespace ulp::kernels
