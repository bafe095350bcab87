// Depthwise convolution of bytes into bytes. A lane of vpdpbusd holds four channels of one pixel; with
// weights that are zero but for channel q of each lane, four such products give the four channels apart, and
// no byte ever moves between lanes: shuffles, one a cycle, were the limit of every other way.
#include "ulp/kernels/conv/tile_kernel.h"
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/isa/vec512.h"

namespace ulp::kernels {
namespace {

using V = Vec512;

/// values = curve(values) in units of the codes.
__attribute__((noinline)) void curve_codes(const Finish& f, __m512 (&values)[4]) {
  alignas(64) float row[64];
  for (int q = 0; q < 4; ++q) V::storef(row + 16 * q, values[q]);
  apply_curve(f.curve, row, row, 64);
  for (int q = 0; q < 4; ++q) values[q] = V::mul(V::loadf(row + 16 * q), V::set1(f.to_codes));
}

template <bool kResidual>
inline __attribute__((always_inline)) void finish_pixel(__m512i (&acc)[4], const DepthwiseArgs& t, int64_t at,
                                                        const float* multiplier, __mmask64 mask) {
  const Finish& f = *t.finish;
  __m512i r = {};
  if constexpr (kResidual) r = _mm512_maskz_loadu_epi8(mask, static_cast<const uint8_t*>(t.residual) + at);
  __m512 values[4];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    values[q] = V::mul(V::to_float(acc[q]), V::loadf(multiplier + 16 * q));
    if constexpr (kResidual) {
      const __m512i byte = _mm512_and_si512(_mm512_srli_epi32(r, 8 * q), V::seti(255));
      const __m512 added =
          V::mul(V::sub(V::to_float(byte), V::set1(f.residual_zero)), V::set1(f.residual_scale));
      values[q] = V::add(values[q], added);
    }
  }
  if (f.curve != Activation::none) curve_codes(f, values);
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512 clamped = V::min(V::max(values[q], V::set1(f.lo)), V::set1(f.hi));
    acc[q] = V::addi(_mm512_cvtps_epi32(clamped), V::seti(f.output_zero));
  }
  const __m512i low = _mm512_or_si512(acc[0], _mm512_slli_epi32(acc[1], 8));
  const __m512i high = _mm512_or_si512(_mm512_slli_epi32(acc[2], 16), _mm512_slli_epi32(acc[3], 24));
  _mm512_mask_storeu_epi8(static_cast<uint8_t*>(t.y) + at, mask, _mm512_or_si512(low, high));
}

template <bool kResidual, int M>
void pixels(const DepthwiseArgs& t, int64_t pixel, int64_t channel, __mmask64 mask) {
  __m512i acc[M][4];
  const int32_t* bias = static_cast<const int32_t*>(t.finish->bias) + channel;
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) acc[m][q] = V::loadi(bias + 16 * q);
  }
  const uint8_t* a = t.a + pixel * t.a_step + channel;
  const int8_t* w = static_cast<const int8_t*>(t.weights) + channel * t.tap_count * 4;
  for (int64_t tap = 0; tap < t.tap_count; ++tap, w += 256) {
    const uint8_t* from = a + t.taps[tap];
    const __m512i weights[4] = {V::loadi(w), V::loadi(w + 64), V::loadi(w + 128), V::loadi(w + 192)};
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const __m512i x = _mm512_maskz_loadu_epi8(mask, from + m * t.a_step);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) acc[m][q] = _mm512_dpbusd_epi32(acc[m][q], x, weights[q]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) __asm__("" : "+v"(acc[m][q]));  // or the loop copies every sum in each round
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    finish_pixel<kResidual>(acc[m], t, (pixel + m) * t.channels + channel, t.finish->multiplier + channel,
                            mask);
  }
}

template <bool kResidual>
void depthwise_row(const DepthwiseArgs& t) {
  for (int64_t c = 0; c < t.channels; c += 64) {
    const int64_t left = t.channels - c;
    const __mmask64 mask = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
    int64_t m = 0;
    for (; m + 4 <= t.pixels; m += 4) pixels<kResidual, 4>(t, m, c, mask);
    // All at once: a single pixel would wait for each of its products.
    const int64_t rest = t.pixels - m;
    if (rest == 3) pixels<kResidual, 3>(t, m, c, mask);
    if (rest == 2) pixels<kResidual, 2>(t, m, c, mask);
    if (rest == 1) pixels<kResidual, 1>(t, m, c, mask);
  }
}

void depthwise_bytes(const DepthwiseArgs& t) {
  if (t.residual != nullptr) return depthwise_row<true>(t);
  depthwise_row<false>(t);
}

}  // namespace

const DepthwiseBytes kDepthwiseBytesAvx512Vnni = {"vnni", depthwise_bytes, DepthwisePacking::quads, 1};

}  // namespace ulp::kernels
