// The kernels of block-sparse layers as templates over a dot product; included by one file per vector instruction set
// after its vector type. Everything has internal linkage.
#pragma once

#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/sparse/block_kernel.h"
#include "ulp/kernels/sparse/interleave.h"

namespace ulp::kernels {
namespace {

/// One block times M rows, into the sums of panel p.
template <typename Dot, int kUnits, int M, int NB>
inline __attribute__((always_inline)) void block_step(typename Dot::Acc (&acc)[M][NB], int p,
                                                      const BlockTileArgs& t, int64_t i) {
  using V = typename Dot::Vec;
  constexpr int kVectors = kBlockOutputs / V::kLanes;
  constexpr bool kApart = M <= kRowsApart;
  const uint8_t* x = t.a + int64_t{t.index[i]} * (kUnits * 4 * (kApart ? 1 : M));
  const uint8_t* block = t.values + i * (kUnits * kBlockOutputs * 4);
#pragma GCC unroll 2
  for (int u = 0; u < kUnits; ++u) {
    typename V::I b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = V::loadi(block + (u * kBlockOutputs + v * V::kLanes) * 4);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const typename V::I a = V::broadcast(kApart ? x + m * t.a_step + u * 4 : x + (u * M + m) * 4);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        acc[m][p * kVectors + v] = Dot::dot(acc[m][p * kVectors + v], a, b[v]);
    }
  }
}

/// P panels side by side, for independent sums; each sum takes its products in the order of the inputs.
template <typename Dot, int kUnits, int M, int P>
void block_tile(const BlockTileArgs& t) {
  constexpr int NB = P * kBlockOutputs / Dot::Vec::kLanes;
  typename Dot::Acc acc[M][NB];
  start_sums<Dot, M, NB>(acc, t.out);
  int64_t common = t.begin[1] - t.begin[0];
#pragma GCC unroll 4
  for (int p = 1; p < P; ++p) {
    const int64_t count = t.begin[p + 1] - t.begin[p];
    common = count < common ? count : common;
  }
  if constexpr (P > 1) {
    int64_t at[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) at[p] = t.begin[p];
    for (int64_t i = 0; i < common; ++i) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) block_step<Dot, kUnits, M, NB>(acc, p, t, at[p] + i);
    }
  } else {
    common = 0;
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const int64_t end = t.begin[p + 1];
    for (int64_t i = t.begin[p] + common; i < end; ++i) block_step<Dot, kUnits, M, NB>(acc, p, t, i);
  }
  finish_sums<Dot, M, NB>(acc, t.out);
}

// clang-format off
#define ULP_BLOCKS_1(Dot, U, P) nullptr, block_tile<Dot, U, 1, P>
#define ULP_BLOCKS_3(Dot, U, P) ULP_BLOCKS_1(Dot, U, P), block_tile<Dot, U, 2, P>, block_tile<Dot, U, 3, P>
#define ULP_BLOCKS_4(Dot, U, P) ULP_BLOCKS_3(Dot, U, P), block_tile<Dot, U, 4, P>
#define ULP_BLOCKS_6(Dot, U, P) ULP_BLOCKS_4(Dot, U, P), block_tile<Dot, U, 5, P>, block_tile<Dot, U, 6, P>
#define ULP_BLOCKS_8(Dot, U, P) ULP_BLOCKS_6(Dot, U, P), block_tile<Dot, U, 7, P>, block_tile<Dot, U, 8, P>
#define ULP_BLOCKS_16(Dot, U, P) ULP_BLOCKS_8(Dot, U, P), block_tile<Dot, U, 9, P>, block_tile<Dot, U, 10, P>, \
                                 block_tile<Dot, U, 11, P>, block_tile<Dot, U, 12, P>, block_tile<Dot, U, 13, P>, \
                                 block_tile<Dot, U, 14, P>, block_tile<Dot, U, 15, P>, block_tile<Dot, U, 16, P>
// clang-format on

}  // namespace
}  // namespace ulp::kernels
