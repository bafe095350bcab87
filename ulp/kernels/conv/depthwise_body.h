// Depthwise convolution as templates over a vector type; included by one file per instruction set. Everything has internal
// linkage.
#pragma once

#include "ulp/kernels/conv/tile_body.h"

namespace ulp::kernels {
namespace {

/// Depthwise: `Sums` with an extra load of input elements and a product.
template <typename V>
struct DepthF32 : FloatSums<V> {
  static constexpr int kBytes = 4;
  static typename V::F input(const uint8_t* x) { return V::loadf(reinterpret_cast<const float*>(x)); }
  static typename V::F step(typename V::F acc, const uint8_t* x, const void* w, int64_t i) {
    return V::fma(input(x), V::loadf(static_cast<const float*>(w) + i), acc);
  }
};
template <typename V>
struct DepthBf16 : FloatSums<V> {
  static constexpr int kBytes = 2;
  static typename V::F input(const uint8_t* x) { return V::load_bf16(x); }
  static typename V::F step(typename V::F acc, const uint8_t* x, const void* w, int64_t i) {
    return V::fma(input(x), V::loadf(static_cast<const float*>(w) + i), acc);
  }
};
template <typename V>
struct DepthU8 : IntSums<V> {
  static constexpr int kBytes = 1;
  static typename V::I step(typename V::I acc, const uint8_t* x, const void* w, int64_t i) {
    // The byte sits in the low half of its lane, the high half is zero: one 16-bit product pair is x * w
    // exactly.
    return V::addi(acc, V::madd16(V::load_u8(x), V::loadi(static_cast<const int32_t*>(w) + i)));
  }
};

template <typename Depth, int M>
inline void depthwise_pixels(const DepthwiseArgs& t, int64_t pixel, int64_t channel,
                             typename Depth::Scalar* sums) {
  using V = typename Depth::Vec;
  typename Depth::Acc acc[M];
  const typename Depth::Acc bias = Depth::load(static_cast<const uint8_t*>(t.finish->bias) + channel * 4);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = bias;
  const uint8_t* a = t.a + pixel * t.a_step + channel * Depth::kBytes;
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const uint8_t* x = a + t.taps[tap];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
      acc[m] = Depth::step(acc[m], x + m * t.a_step, t.weights, tap * t.weight_step + channel);
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) Depth::store(sums + m * V::kLanes, acc[m]);
}

/// P neighbours of a row, one vector of channels: each input is read once for all outputs that it is a part of. Sums
/// are those of depthwise_pixels(), in the same order.
template <typename Depth, int KW, int S, int P>
inline __attribute__((always_inline)) void depthwise_run(const DepthwiseArgs& t, int64_t pixel,
                                                         int64_t channel) {
  using V = typename Depth::Vec;
  typename V::F acc[P][1];
  const typename V::F bias = Depth::load(static_cast<const uint8_t*>(t.finish->bias) + channel * 4);
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) acc[p][0] = bias;
  const uint8_t* a = t.a + pixel * t.a_step + channel * Depth::kBytes;
  const float* w = static_cast<const float*>(t.weights) + channel;
  for (int64_t tap = 0; tap < t.tap_count; tap += KW) {
    const uint8_t* row = a + t.taps[tap];
    typename V::F weight[KW];
#pragma GCC unroll 5
    for (int k = 0; k < KW; ++k) weight[k] = V::loadf(w + (tap + k) * t.weight_step);
#pragma GCC unroll 24
    for (int j = 0; j < (P - 1) * S + KW; ++j) {
      const typename V::F x = Depth::input(row + j * t.column_bytes);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const int k = j - p * S;
        if (k >= 0 && k < KW) acc[p][0] = V::fma(x, weight[k], acc[p][0]);
      }
    }
  }
  const int64_t at = pixel * t.channels + channel;
  const void* residual = t.residual == nullptr
                             ? nullptr
                             : static_cast<const uint8_t*>(t.residual) + at * element_bytes(t.finish->output);
  finish_floats<V, P, 1>(acc, *t.finish, static_cast<uint8_t*>(t.y) + at * element_bytes(t.finish->output),
                         residual, t.channels);
}

/// All whole vectors of channels; returns how many channels that are.
template <typename Depth, int KW, int S>
int64_t depthwise_rows(const DepthwiseArgs& t) {
  using V = typename Depth::Vec;
  constexpr int64_t kBlock = 56;  // pixels whose inputs stay in the first-level cache
  const int64_t whole = t.channels / V::kLanes * V::kLanes;
  for (int64_t begin = 0; begin < t.pixels; begin += kBlock) {
    const int64_t end = t.pixels - begin < kBlock ? t.pixels : begin + kBlock;
    for (int64_t c = 0; c < whole; c += V::kLanes) {
      int64_t m = begin;
      if ((end - begin) % 8 != 0 && (end - begin) % 7 == 0) {
        for (; m < end; m += 7) depthwise_run<Depth, KW, S, 7>(t, m, c);
      }
      for (; m + 8 <= end; m += 8) depthwise_run<Depth, KW, S, 8>(t, m, c);
      for (; m + 4 <= end; m += 4) depthwise_run<Depth, KW, S, 4>(t, m, c);
      for (; m < end; ++m) depthwise_run<Depth, KW, S, 1>(t, m, c);
    }
  }
  return whole;
}

/// The channels that a faster way than depthwise_pixels() has done.
template <typename Depth>
int64_t depthwise_done(const DepthwiseArgs& t) {
  if constexpr (!Depth::kInteger) {
    if (t.column_bytes == 0 || !finishes_floats(*t.finish, t.residual != nullptr)) return 0;
    const int64_t stride = t.a_step / t.column_bytes;
    if (t.kernel_w == 3 && stride == 1) return depthwise_rows<Depth, 3, 1>(t);
    if (t.kernel_w == 3 && stride == 2) return depthwise_rows<Depth, 3, 2>(t);
    if (t.kernel_w == 5 && stride == 1) return depthwise_rows<Depth, 5, 1>(t);
    if (t.kernel_w == 5 && stride == 2) return depthwise_rows<Depth, 5, 2>(t);
  }
  return 0;
}

template <typename Depth>
void depthwise(const DepthwiseArgs& t) {
  using V = typename Depth::Vec;
  constexpr int64_t kBlock = 32;  // pixels between two calls of the epilogue
  alignas(64) typename Depth::Scalar sums[kBlock * V::kLanes];
  const int64_t done = depthwise_done<Depth>(t);
  if (done >= t.channels) return;
  for (int64_t begin = 0; begin < t.pixels; begin += kBlock) {
    const int64_t count = t.pixels - begin < kBlock ? t.pixels - begin : kBlock;
    for (int64_t c = done; c < t.channels; c += V::kLanes) {
      int64_t m = 0;
      for (; m + 4 <= count; m += 4) depthwise_pixels<Depth, 4>(t, begin + m, c, sums + m * V::kLanes);
      for (; m < count; ++m) depthwise_pixels<Depth, 1>(t, begin + m, c, sums + m * V::kLanes);
      const int64_t bytes = element_bytes(t.finish->output);
      const int64_t residual_bytes = element_bytes(t.finish->residual_type);
      const int64_t at = begin * t.channels + c;
      const void* residual =
          t.residual == nullptr ? nullptr : static_cast<const uint8_t*>(t.residual) + at * residual_bytes;
      uint8_t* y = static_cast<uint8_t*>(t.y) + at * bytes;
      if (t.finish->curve != Activation::none) {
        finish_curve<Depth>(sums, count, 1, *t.finish, c, t.channels - c, y, residual, t.channels);
      } else {
        finish_tile<Depth>(sums, count, 1, *t.finish, c, t.channels - c, y, residual, t.channels);
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
