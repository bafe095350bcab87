// The kernels of Winograd's convolution as templates over a vector type; included by one file per instruction
// set. Everything has internal linkage.
#pragma once

#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/conv/winograd_kernel.h"

namespace ulp::kernels {
namespace {

/// Products of 16-bit numbers, whose sums are stored as they are.
template <typename V>
struct DotI16Sums : DotI16<V> {
  static constexpr bool kStoresSums = true;
};

/// Four vectors of i16 -> those of the positions: d0 - d2, d1 + d2, d2 - d1, d1 - d3.
template <typename V>
inline __attribute__((always_inline)) void to_positions(typename V::I& d0, typename V::I& d1,
                                                        typename V::I& d2, typename V::I& d3) {
  const typename V::I first = V::sub16(d0, d2), sum = V::add16(d1, d2), difference = V::sub16(d2, d1);
  d3 = V::sub16(d1, d3);
  d0 = first;
  d1 = sum;
  d2 = difference;
}

template <typename V>
void transform_input(const WinogradPatch& patch) {
  for (int64_t c = 0; c < patch.channels; c += 2 * V::kLanes) {
    typename V::I d[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) d[r][s] = V::load_u8_as_16(patch.pixels[4 * r + s] + c);
      to_positions<V>(d[r][0], d[r][1], d[r][2], d[r][3]);
    }
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      to_positions<V>(d[0][s], d[1][s], d[2][s], d[3][s]);
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) V::store16(patch.to + (4 * r + s) * patch.position + c, d[r][s]);
    }
  }
}

/// Sums at four positions -> two results: m0 + m1 + m2 and m1 - m2 - m3.
template <typename V>
inline __attribute__((always_inline)) void to_results(const typename V::I (&m)[4],
                                                      typename V::I (&results)[2]) {
  results[0] = V::addi(V::addi(m[0], m[1]), m[2]);
  results[1] = V::subi(V::subi(m[1], m[2]), m[3]);
}

/// One panel of a square. Weights are transformed to twice their numbers in either direction, so that sums
/// are four times what they stand for.
template <typename V>
inline __attribute__((always_inline)) void square_of_sums(const int32_t* sums, int64_t position,
                                                          const int32_t* bias,
                                                          typename V::I (&square)[2][2]) {
  typename V::I across[2][4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    typename V::I m[4], pair[2];
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) m[s] = V::loadi(sums + (4 * r + s) * position);
    to_results<V>(m, pair);
    across[0][r] = pair[0];
    across[1][r] = pair[1];
  }
#pragma GCC unroll 2
  for (int column = 0; column < 2; ++column) {
    typename V::I pair[2];
    to_results<V>(across[column], pair);
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row)
      square[row][column] = V::addi(V::template shift_right<2>(pair[row]), V::loadi(bias));
  }
}

template <typename V>
void finish_output(const WinogradSquare& s) {
  using Dot = DotI16<V>;
  const int32_t* bias = static_cast<const int32_t*>(s.row[0].finish->bias) + s.row[0].channel;
  typename V::I panel[2][2][2];
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n)
    square_of_sums<V>(s.sums + n * V::kLanes, s.position, bias + n * V::kLanes, panel[n]);
  for (int row = 0; row < s.rows; ++row) {
    typename V::I both[2][2] = {{panel[0][row][0], panel[1][row][0]}, {panel[0][row][1], panel[1][row][1]}};
    if (s.columns == 2) {
      finish_sums<Dot, 2, 2>(both, s.row[row]);
      continue;
    }
    typename V::I one[1][2] = {{both[0][0], both[0][1]}};
    finish_sums<Dot, 1, 2>(one, s.row[row]);
  }
}

}  // namespace
}  // namespace ulp::kernels
