// The kernels of products with scales by blocks as templates over a dot product of conv/tile_body.h and the
// bytes of a staged code; included by one file per instruction set. Everything has internal linkage.
#pragma once

// after the vector type
#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/linear/int8_block_kernel.h"

namespace ulp::kernels {
namespace {

/// M rows by NB panels, beginning with panel `first`.
template <typename Dot, int kCodeBytes, int M, int NB>
inline __attribute__((always_inline)) void block_panels(const Int8BlockTileArgs& t, int64_t first) {
  using V = typename Dot::Vec;
  typename V::F total[M][NB];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) total[m][n] = V::set1(0.0F);
  }
  constexpr int64_t kBytes = kScaleBlock * kCodeBytes;  // of a row and a block
  const uint8_t* rows[2] = {t.a, t.a + 3 * t.a_step};
  const uint8_t* panels[NB];
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) panels[n] = t.b + (first + n) * t.b_panel;
  for (int64_t block = 0; block < t.blocks; ++block) {
    typename V::I sum[M][NB];
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) {
      const typename V::I start = V::loadi(t.start + block * kScaleBlock + (first + n) * V::kLanes);
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) sum[m][n] = start;
    }
#pragma GCC unroll 16
    for (int64_t at = 0; at < kBytes; at += 4) tile_step<Dot, M, NB>(sum, rows, t.a_step, panels, at);
    const typename V::F scale = V::set1(t.a_scale[block] * t.b_scale[block]);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int n = 0; n < NB; ++n) total[m][n] = V::add(total[m][n], V::mul(V::to_float(sum[m][n]), scale));
    }
    rows[0] += kBytes;
    rows[1] += kBytes;
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) panels[n] += kBytes * V::kLanes;
  }
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) {
    const int64_t column = (first + n) * V::kLanes, left = t.columns - column;
    if (left <= 0) break;
    const typename V::F bias = V::loadf(t.bias + column);
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const typename V::F v = V::add(total[m][n], bias);
      const int64_t at = m * t.y_step + column;
      t.output == DataType::bf16 ? V::store_bf16(t.y, at, left, v) : V::store_f32(t.y, at, left, v);
    }
  }
}

/// 32 columns: as many panels at a time as registers hold.
template <typename Dot, int kCodeBytes, int M, int NB>
void block_tile(const Int8BlockTileArgs& t) {
  for (int64_t first = 0; first < kScaleBlock / Dot::Vec::kLanes; first += NB) {
    if (first * Dot::Vec::kLanes >= t.columns) break;
    block_panels<Dot, kCodeBytes, M, NB>(t, first);
  }
}

// clang-format off
#define ULP_BLOCK_TILES(Dot, kBytes, NB)                                                      \
  {nullptr, block_tile<Dot, kBytes, 1, NB>, block_tile<Dot, kBytes, 2, NB>,                   \
   block_tile<Dot, kBytes, 3, NB>, block_tile<Dot, kBytes, 4, NB>, block_tile<Dot, kBytes, 5, NB>, \
   block_tile<Dot, kBytes, 6, NB>}
// clang-format on

}  // namespace
}  // namespace ulp::kernels
