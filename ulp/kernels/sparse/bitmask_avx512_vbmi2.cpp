// vpexpandb brings the kept bytes of 64 weights to their places, vpdpbusd takes the products.
#include "ulp/kernels/isa/vec512.h"
// after the vector type
#include "ulp/kernels/conv/dot_vnni.h"
#include "ulp/kernels/sparse/bitmask_kernel.h"

namespace ulp::kernels {
namespace {

// How far ahead memory is fetched: the time that a line takes from beyond the second level of the cache.
constexpr int64_t kValuesAhead = 4096;
constexpr int64_t kMasksAhead = 256;

/// Several sums a row, so that a product need not wait for the one before it.
template <int M>
void bitmask_tile(const BitmaskTileArgs& t) {
  constexpr int kSums = M == 1 ? 4 : 2;
  __m512i acc[M][1];
  start_sums<DotU8, M, 1>(acc, t.out);
  __m512i sums[M][kSums];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    sums[m][0] = acc[m][0];
#pragma GCC unroll 4
    for (int s = 1; s < kSums; ++s) sums[m][s] = _mm512_setzero_si512();
  }
  const int8_t* values = t.values;
  const auto step = [&](int64_t quad, int s) __attribute__((always_inline)) {
    const uint64_t mask = t.masks[quad];
    __m512i packed = _mm512_loadu_si512(values);
    __asm__("" : "+v"(packed));  // vpexpandb from memory is microcode
    const __m512i weights = _mm512_maskz_expand_epi8(mask, packed);
    values += __builtin_popcountll(mask);
    __builtin_prefetch(values + kValuesAhead, 0, 3);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      sums[m][s] =
          DotU8::dot(sums[m][s], Vec512::broadcast(t.a + m * t.a_step + quad * kMaskInputs), weights);
    }
  };
  int64_t quad = 0;
  for (; quad + kSums <= t.quads; quad += kSums) {
    __builtin_prefetch(t.masks + quad + kMasksAhead, 0, 3);
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) step(quad + s, s);
  }
  for (; quad < t.quads; ++quad) step(quad, 0);
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    acc[m][0] = sums[m][0];
#pragma GCC unroll 4
    for (int s = 1; s < kSums; ++s) acc[m][0] = _mm512_add_epi32(acc[m][0], sums[m][s]);
  }
  finish_sums<DotU8, M, 1>(acc, t.out);
}

}  // namespace

const BitmaskKernels kBitmaskAvx512Vbmi2 = {
    "s8_bitmask_avx512_vbmi2", {nullptr, bitmask_tile<1>, bitmask_tile<2>, bitmask_tile<3>, bitmask_tile<4>}};

}  // namespace ulp::kernels
