// What binary layers do with their counts: the same for all kernels. Functions with internal linkage, see
// float_bits.h for why.
#pragma once

#include "ulp/kernels/binary/binary_kernel.h"
#include "ulp/kernels/elementwise/activations.h"

namespace ulp::kernels {
namespace {

/// One row of `n` channels. What lies behind the last one of them is read, but for the residual.
template <typename V, bool kBias, bool kResidual>
void finish_row(const int32_t* counts, const int32_t* start, const float* scale, const float* bias,
                const float* residual, const BinaryFinish& f, float* y, int64_t n) {
  const typename V::F lo = V::set1(f.lo), hi = V::set1(f.hi);
  for (int64_t c = 0; c < n; c += V::kLanes) {
    const typename V::I count = V::loadi(counts + c);
    const typename V::I dot = V::subi(V::loadi(start + c), V::addi(count, count));
    typename V::F v = V::mul(V::loadf(scale + c), V::to_float(dot));
    if constexpr (kBias) v = V::add(v, V::loadf(bias + c));
    if constexpr (kResidual) v = V::add(v, V::load_as_float(DataType::f32, residual, c, n - c));
    V::store_f32(y, c, n - c, V::min(hi, V::max(lo, v)));  // in this order a NaN stays
  }
}

template <typename V>
void finish_floats(const int32_t* counts, int rows, int64_t width, const BinaryTileArgs& t) {
  const BinaryFinish& f = *t.finish;
  const int64_t n = t.channels < width ? t.channels : width;
  const auto each = [&](auto fn) __attribute__((always_inline)) {
    for (int m = 0; m < rows; ++m) {
      fn(counts + m * width, t.start[m] + t.channel, t.scale[m] + t.channel,
         f.bias == nullptr ? nullptr : f.bias + t.channel,
         t.residual == nullptr ? nullptr : t.residual + m * t.y_step, f,
         reinterpret_cast<float*>(t.y) + m * t.y_step, n);
    }
  };
  if (f.bias != nullptr) {
    t.residual != nullptr ? each(finish_row<V, true, true>) : each(finish_row<V, true, false>);
  } else {
    t.residual != nullptr ? each(finish_row<V, false, true>) : each(finish_row<V, false, false>);
  }
  if (f.curve == Activation::none) return;
  for (int m = 0; m < rows; ++m) {
    float* y = reinterpret_cast<float*>(t.y) + m * t.y_step;
    apply_curve(f.curve, y, y, n);
  }
}

/// V::Floats: its vector of floats, with the functions of isa/vec256.h. V::below(start, counts, threshold): a
/// bit for each of 16 channels where start - 2 * count is below the threshold.
template <typename V>
void finish_bits(const int32_t* counts, int rows, int64_t width, const BinaryTileArgs& t) {
  const BinaryFinish& f = *t.finish;
  for (int m = 0; m < rows; ++m) {
    for (int64_t c = 0; c < width && c < t.channels; c += kPanelOutputs) {
      const int64_t channel = t.channel + c;
      const unsigned bits = V::below(t.start[m] + channel, counts + m * width + c, f.threshold + channel);
      uint8_t* y = t.y + m * t.y_step + c / 8;
      y[0] = static_cast<uint8_t>(bits ^ f.flip[channel / 8]);
      if (t.channels - c > 8) y[1] = static_cast<uint8_t>(bits >> 8 ^ f.flip[channel / 8 + 1]);
    }
  }
}

template <typename V>
void finish_counts(const int32_t* counts, int rows, int64_t width, const BinaryTileArgs& t) {
  if (t.finish->threshold != nullptr) return finish_bits<V>(counts, rows, width, t);
  finish_floats<typename V::Floats>(counts, rows, width, t);
}

}  // namespace
}  // namespace ulp::kernels
