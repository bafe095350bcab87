// The tile kernels as templates over a vector type and a dot product; included by one file per instruction
// set. Everything has internal linkage.
#pragma once

#include "ulp/kernels/common/compiler.h"
#include "ulp/kernels/conv/tile_kernel.h"
#include "ulp/kernels/conv/widen.h"
#include "ulp/kernels/elementwise/activations.h"
#include "ulp/kernels/isa/prefetch.h"

namespace ulp::kernels {
namespace {

/// Accumulators of a float layer.
template <typename V>
struct FloatSums {
  using Vec = V;
  using Acc = typename V::F;
  using Scalar = float;
  static constexpr bool kInteger = false;
  static constexpr bool kByLane = false;
  static constexpr bool kStoresSums = false;
  static constexpr int kWeightBytes = 4;  ///< of a unit of packed weights
  static typename V::I load_weights(const uint8_t* p) { return V::loadi(p); }
  static Acc load(const void* p) { return V::loadf(static_cast<const float*>(p)); }
  static void store(Scalar* p, Acc v) { V::storef(p, v); }
};

/// Accumulators of an 8-bit layer.
template <typename V>
struct IntSums {
  using Vec = V;
  using Acc = typename V::I;
  using Scalar = int32_t;
  static constexpr bool kInteger = true;
  static constexpr bool kByLane = false;
  static constexpr bool kStoresSums = false;  ///< as they are: no bias, nothing behind them
  static constexpr int kWeightBytes = 4;
  static typename V::I load_weights(const uint8_t* p) { return V::loadi(p); }
  static Acc load(const void* p) { return V::loadi(p); }
  static void store(Scalar* p, Acc v) { V::storei(p, v); }
};

template <typename V>
struct DotF32 : FloatSums<V> {
  static typename V::F dot(typename V::F acc, typename V::I a, typename V::I b) {
    return V::fma(reinterpret_cast<typename V::F>(a), reinterpret_cast<typename V::F>(b), acc);
  }
};

/// Two 16-bit products: bytes were widened before, so nothing saturates.
template <typename V>
struct DotI16 : IntSums<V> {
  static typename V::I dot(typename V::I acc, typename V::I a, typename V::I b) {
    typename V::I sum = V::addi(acc, V::madd16(a, b));
    __asm__("" : "+v"(sum));  // or GCC adds the products of several steps first, and spills them all
    return sum;
  }
};

/// The same on weights in half the bytes.
template <typename V>
struct DotF32NarrowBf16 : DotF32<V> {
  static constexpr int kWeightBytes = 2;
  static typename V::I load_weights(const uint8_t* p) {
    return reinterpret_cast<typename V::I>(V::load_bf16(p));
  }
};
template <typename V>
struct DotI16NarrowI8 : DotI16<V> {
  static constexpr int kWeightBytes = 2;
  static typename V::I load_weights(const uint8_t* p) { return V::load_s8_as_s16(p); }
};

/// Whole vectors of bf16 weights as f32.
template <typename V>
void widen_weights(const uint8_t* packed, uint8_t* wide, int64_t weights) {
  for (int64_t i = 0; i < weights; i += V::kLanes)
    V::storef(reinterpret_cast<float*>(wide) + i, V::load_bf16(packed + 2 * i));
}

/// Sums of `pixels` rows of `panels` vectors -> the output.
template <typename Sums, DataType kOutput, bool kResidual>
void finish_rows(const typename Sums::Scalar* sums, int64_t pixels, int64_t panels, const Finish& f,
                 int64_t channel, int64_t channels, void* y, const void* residual, int64_t y_step) {
  using V = typename Sums::Vec;
  const typename V::F lo = V::set1(f.lo), hi = V::set1(f.hi);
  const typename V::F r_zero = V::set1(f.residual_zero), r_scale = V::set1(f.residual_scale);
  const typename V::I zero = V::seti(f.output_zero);
  for (int64_t n = 0; n < panels; ++n) {
    const int64_t left = channels - n * V::kLanes;
    if (left <= 0) break;
    typename V::F multiplier = V::set1(1.0F);
    if constexpr (Sums::kInteger) multiplier = V::loadf(f.multiplier + channel + n * V::kLanes);
    for (int64_t m = 0; m < pixels; ++m) {
      const typename Sums::Acc sum = Sums::load(sums + (m * panels + n) * V::kLanes);
      const int64_t at = m * y_step + n * V::kLanes;
      typename V::F v;
      if constexpr (Sums::kInteger) {
        v = V::mul(V::to_float(sum), multiplier);
      } else {
        v = sum;
      }
      if constexpr (kResidual) {
        const typename V::F r = V::load_as_float(f.residual_type, residual, at, left);
        v = V::add(v, V::mul(V::sub(r, r_zero), r_scale));
      }
      // The order of the operands decides what a NaN becomes: finish_store in finish.h is the model.
      if constexpr (kOutput == DataType::u8) {
        V::store_u8(y, at, left, V::min(V::max(v, lo), hi), zero);
      } else if constexpr (kOutput == DataType::bf16) {
        V::store_bf16(y, at, left, V::min(hi, V::max(lo, v)));
      } else {
        V::store_f32(y, at, left, V::min(hi, V::max(lo, v)));
      }
    }
  }
}

template <typename Sums>
__attribute__((noinline)) void finish_tile(const typename Sums::Scalar* sums, int64_t pixels, int64_t panels,
                                           const Finish& f, int64_t channel, int64_t channels, void* y,
                                           const void* residual, int64_t y_step) {
  const bool with = residual != nullptr;
  const auto call = [&](auto fn) { fn(sums, pixels, panels, f, channel, channels, y, residual, y_step); };
  if (f.output == DataType::u8) {
    return call(with ? finish_rows<Sums, DataType::u8, true> : finish_rows<Sums, DataType::u8, false>);
  }
  if (f.output == DataType::bf16) {
    return call(with ? finish_rows<Sums, DataType::bf16, true> : finish_rows<Sums, DataType::bf16, false>);
  }
  call(with ? finish_rows<Sums, DataType::f32, true> : finish_rows<Sums, DataType::f32, false>);
}

/// Fetches what the end of a tile will read and write while the products are summed: rows far apart, which the hardware does
/// not foresee.
template <typename V>
ULP_ONE_COPY void prefetch_results(const TileArgs& t, int64_t pixels, int64_t panels) {
  const int64_t numbers = panels * V::kLanes, bytes = element_bytes(t.finish->output);
  const char* y = static_cast<const char*>(t.y);
  if (t.residual != nullptr) {
    const int64_t step = element_bytes(t.finish->residual_type);
    const char* residual = static_cast<const char*>(t.residual);
    for (int64_t m = 0; m < pixels; ++m) prefetch_lines(residual + m * t.y_step * step, numbers * step);
  }
  for (int64_t m = 0; m < pixels; ++m) prefetch_lines<true>(y + m * t.y_step * bytes, numbers * bytes);
}

/// Sums of a dynamic layer -> the output, in f32 or bf16.
template <typename Sums>
ULP_ONE_COPY void finish_dynamic(const typename Sums::Scalar* sums, int64_t pixels, int64_t panels,
                                 const TileArgs& t) {
  using V = typename Sums::Vec;
  const Finish& f = *t.finish;
  const typename V::F lo = V::set1(f.lo), hi = V::set1(f.hi);
  for (int64_t n = 0; n < panels; ++n) {
    const int64_t left = t.channels - n * V::kLanes;
    if (left <= 0) break;
    const int64_t channel = t.channel + n * V::kLanes;
    const typename V::F scale = V::loadf(f.multiplier + channel), bias = V::loadf(f.bias_f32 + channel);
    const typename V::I weight_sum = V::loadi(f.weight_sum + channel);
    for (int64_t m = 0; m < pixels; ++m) {
      const typename V::I sum = V::loadi(sums + (m * panels + n) * V::kLanes);
      const typename V::I exact = V::subi(sum, V::muli(V::seti(t.row_zero[m]), weight_sum));
      const int64_t at = m * t.y_step + n * V::kLanes;
      typename V::F v = V::mul(V::to_float(exact), V::mul(V::set1(t.row_scale[m]), scale));
      v = V::add(v, bias);
      if (t.residual != nullptr) v = V::add(v, V::load_as_float(f.residual_type, t.residual, at, left));
      v = V::min(hi, V::max(lo, v));
      f.output == DataType::bf16 ? V::store_bf16(t.y, at, left, v) : V::store_f32(t.y, at, left, v);
    }
  }
}

/// The curve over f32 results that have just been stored, of at most 64 channels. A curve costs as much for a part of
/// a vector, number by number, as for many whole ones.
ULP_ONE_COPY void curve_rows(Activation curve, float* y, int64_t y_step, int64_t pixels, int64_t channels) {
  constexpr int64_t kVector = 16;
  if (y_step == channels) return apply_curve(curve, y, y, pixels * channels);
  alignas(64) float row[64] = {};
  for (int64_t m = 0; m < pixels; ++m) {
    float* own = y + m * y_step;
    if (channels % kVector == 0) {
      apply_curve(curve, own, own, channels);
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) row[c] = own[c];
    apply_curve(curve, row, row, (channels + kVector - 1) / kVector * kVector);
    for (int64_t c = 0; c < channels; ++c) own[c] = row[c];
  }
}

/// Sums of `pixels` rows of `panels` vectors -> the numbers that a curve takes, in the same place.
template <typename Sums>
inline void to_numbers(typename Sums::Scalar* sums, int64_t pixels, int64_t panels, const Finish& f,
                       int64_t channel, int64_t channels, const void* residual, int64_t y_step) {
  using V = typename Sums::Vec;
  const typename V::F r_zero = V::set1(f.residual_zero), r_scale = V::set1(f.residual_scale);
  for (int64_t n = 0; n < panels; ++n) {
    typename V::F multiplier = V::set1(1.0F);
    if constexpr (Sums::kInteger) multiplier = V::loadf(f.multiplier + channel + n * V::kLanes);
    const int64_t left = channels - n * V::kLanes;
    for (int64_t m = 0; m < pixels && left > 0; ++m) {
      typename Sums::Scalar* at = sums + (m * panels + n) * V::kLanes;
      typename V::F v;
      if constexpr (Sums::kInteger) {
        v = V::mul(V::to_float(Sums::load(at)), multiplier);
      } else {
        v = Sums::load(at);
      }
      if (residual != nullptr) {
        const typename V::F r = V::load_as_float(f.residual_type, residual, m * y_step + n * V::kLanes, left);
        v = V::add(v, V::mul(V::sub(r, r_zero), r_scale));
      }
      V::storef(reinterpret_cast<float*>(at), v);
    }
  }
}

/// finish_tile() for results that end in a curve, which is applied where the sums lie. One copy serves the tiles of all
/// sizes.
template <typename Sums>
ULP_ONE_COPY void finish_curve(typename Sums::Scalar* sums, int64_t pixels, int64_t panels, const Finish& f,
                               int64_t channel, int64_t channels, void* y, const void* residual,
                               int64_t y_step) {
  using V = typename Sums::Vec;
  if (Sums::kInteger || residual != nullptr)
    to_numbers<Sums>(sums, pixels, panels, f, channel, channels, residual, y_step);
  float* numbers = reinterpret_cast<float*>(sums);
  apply_curve(f.curve, numbers, numbers, pixels * panels * V::kLanes);
  const typename V::F lo = V::set1(f.lo), hi = V::set1(f.hi), scale = V::set1(f.to_codes);
  const typename V::I zero = V::seti(f.output_zero);
  for (int64_t n = 0; n < panels; ++n) {
    const int64_t left = channels - n * V::kLanes;
    for (int64_t m = 0; m < pixels && left > 0; ++m) {
      const typename V::F v = V::loadf(numbers + (m * panels + n) * V::kLanes);
      const int64_t at = m * y_step + n * V::kLanes;
      if (f.output == DataType::u8) {
        V::store_u8(y, at, left, V::min(V::max(V::mul(v, scale), lo), hi), zero);
      } else if (f.output == DataType::bf16) {
        V::store_bf16(y, at, left, v);
      } else {
        V::store_f32(y, at, left, V::min(hi, V::max(lo, v)));
      }
    }
  }
}

/// The common case without a detour through memory: whole panels of bytes, no residual or one of bytes. The
/// upper bound comes before the rounding, the lower one, rounded, after it: the same codes, since rounding
/// keeps the order of numbers.
template <typename V, int M, int NB, bool kResidual>
inline __attribute__((always_inline)) void finish_bytes(typename V::I (&acc)[M][NB], const TileArgs& t) {
  const Finish& f = *t.finish;
  typename V::F multiplier[NB];
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) multiplier[n] = V::loadf(f.multiplier + t.channel + n * V::kLanes);
  const typename V::F hi = V::set1(f.hi), r_zero = V::set1(f.residual_zero),
                      r_scale = V::set1(f.residual_scale);
  const typename V::Bytes limits = V::byte_limits(f.output_zero, f.lo);
  const uint8_t* residual = static_cast<const uint8_t*>(t.residual);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) {
      typename V::F v = V::mul(V::to_float(acc[m][n]), multiplier[n]);
      if constexpr (kResidual) {
        const typename V::F r = V::to_float(V::load_u8(residual + m * t.y_step + n * V::kLanes));
        v = V::add(v, V::mul(V::sub(r, r_zero), r_scale));
      }
      acc[m][n] = V::round(V::min(v, hi));
    }
  }
  V::template store_bytes<M, NB>(acc, limits, static_cast<uint8_t*>(t.y), t.y_step);
}

/// The same for floats: whole panels, and a residual, if there is one, of the output's type. Results are finish_rows()'s.
template <typename V, int M, int NB, DataType kOutput, bool kResidual>
inline __attribute__((always_inline)) void finish_floats(typename V::F (&acc)[M][NB], const Finish& f,
                                                         void* y, const void* residual, int64_t y_step) {
  const typename V::F lo = V::set1(f.lo), hi = V::set1(f.hi);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) {
      const int64_t at = m * y_step + n * V::kLanes;
      typename V::F v = acc[m][n];
      if constexpr (kResidual) v = V::add(v, V::load_as_float(kOutput, residual, at, V::kLanes));
      v = V::min(hi, V::max(lo, v));
      if constexpr (kOutput == DataType::bf16) {
        V::store_bf16(y, at, V::kLanes, v);
      } else {
        V::store_f32(y, at, V::kLanes, v);
      }
    }
  }
}

/// What finish_floats() takes.
inline bool finishes_floats(const Finish& f, bool residual) {
  return f.curve == Activation::none && (f.output == DataType::f32 || f.output == DataType::bf16) &&
         (!residual || f.residual_type == f.output);
}

template <typename V, int M, int NB>
inline __attribute__((always_inline)) void finish_floats(typename V::F (&acc)[M][NB], const Finish& f,
                                                         void* y, const void* residual, int64_t y_step) {
  if (f.output == DataType::bf16) {
    residual != nullptr ? finish_floats<V, M, NB, DataType::bf16, true>(acc, f, y, residual, y_step)
                        : finish_floats<V, M, NB, DataType::bf16, false>(acc, f, y, nullptr, y_step);
  } else {
    residual != nullptr ? finish_floats<V, M, NB, DataType::f32, true>(acc, f, y, residual, y_step)
                        : finish_floats<V, M, NB, DataType::f32, false>(acc, f, y, nullptr, y_step);
  }
}

/// One step of a unit, four bytes of input: every pixel's unit times every panel's.
template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void tile_step(typename Dot::Acc (&acc)[M][NB],
                                                     const uint8_t* const* rows, int64_t step,
                                                     const uint8_t* const* panels, int64_t offset) {
  using V = typename Dot::Vec;
  typename V::I b[NB];
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n)
    b[n] = Dot::load_weights(panels[n] + offset / 4 * Dot::kWeightBytes * V::kLanes);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const typename V::I a = V::broadcast(rows[m / 3] + (m % 3) * step + offset);
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) acc[m][n] = Dot::dot(acc[m][n], a, b[n]);
  }
}

/// Step number kUnit of four, whose units of each pixel are the lanes of `a`.
template <typename Dot, int kUnit, int M, int NB>
inline __attribute__((always_inline)) void lane_step(typename Dot::Acc (&acc)[M][NB],
                                                     const typename Dot::Vec::I (&a)[M],
                                                     const uint8_t* const* panels) {
  using V = typename Dot::Vec;
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) {
    const auto b = Dot::weights(V::loadi(panels[n] + kUnit * 4 * V::kLanes));
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m][n] = Dot::template dot_lane<kUnit>(acc[m][n], a[m], b);
  }
}

/// Four steps. Where an instruction multiplies by one lane of a vector (Dot::kByLane, vectors of 16 bytes), one load brings
/// the four units of a pixel.
template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void four_steps(typename Dot::Acc (&acc)[M][NB],
                                                      const uint8_t* const* rows, int64_t step,
                                                      const uint8_t* const* panels) {
  if constexpr (Dot::kByLane) {
    typename Dot::Vec::I a[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) a[m] = Dot::input(rows[m / 3] + (m % 3) * step);
    lane_step<Dot, 0, M, NB>(acc, a, panels);
    lane_step<Dot, 1, M, NB>(acc, a, panels);
    lane_step<Dot, 2, M, NB>(acc, a, panels);
    lane_step<Dot, 3, M, NB>(acc, a, panels);
  } else {
    tile_step<Dot, M, NB>(acc, rows, step, panels, 0);
    tile_step<Dot, M, NB>(acc, rows, step, panels, 4);
    tile_step<Dot, M, NB>(acc, rows, step, panels, 8);
    tile_step<Dot, M, NB>(acc, rows, step, panels, 12);
  }
}

/// A tile begins with its bias.
template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void start_sums(typename Dot::Acc (&acc)[M][NB], const TileArgs& t) {
  using V = typename Dot::Vec;
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) {
    const typename Dot::Acc bias =
        Dot::load(static_cast<const uint8_t*>(t.finish->bias) + (t.channel + n * V::kLanes) * 4);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m][n] = bias;
  }
  prefetch_results<V>(t, M, NB);
}

template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void clear_sums(typename Dot::Acc (&acc)[M][NB]) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) acc[m][n] = Dot::Vec::seti(0);
  }
}

/// The sums of a tile -> the output.
template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void finish_sums(typename Dot::Acc (&acc)[M][NB], const TileArgs& t) {
  using V = typename Dot::Vec;
  if constexpr (Dot::kInteger && V::kStoresBytes) {
    const bool bytes = t.finish->output == DataType::u8 && t.channels >= NB * V::kLanes &&
                       t.finish->curve == Activation::none;
    if (bytes && t.residual == nullptr) return finish_bytes<V, M, NB, false>(acc, t);
    if (bytes && t.finish->residual_type == DataType::u8) return finish_bytes<V, M, NB, true>(acc, t);
  }
  if constexpr (!Dot::kInteger) {
    if (t.channels >= NB * V::kLanes && finishes_floats(*t.finish, t.residual != nullptr))
      return finish_floats<V, M, NB>(acc, *t.finish, t.y, t.residual, t.y_step);
  }
  alignas(64) typename Dot::Scalar sums[M * NB * V::kLanes];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n) Dot::store(sums + (m * NB + n) * V::kLanes, acc[m][n]);
  }
  if constexpr (Dot::kInteger) {
    if (t.row_scale != nullptr) {
      finish_dynamic<Dot>(sums, M, NB, t);
      const int64_t n = t.channels < NB * V::kLanes ? t.channels : NB * V::kLanes;
      if (t.finish->curve != Activation::none) {
        curve_rows(t.finish->curve, static_cast<float*>(t.y), t.y_step, M, n);
      }
      return;
    }
  }
  if (t.finish->curve != Activation::none) {
    return finish_curve<Dot>(sums, M, NB, *t.finish, t.channel, t.channels, t.y, t.residual, t.y_step);
  }
  finish_tile<Dot>(sums, M, NB, *t.finish, t.channel, t.channels, t.y, t.residual, t.y_step);
}

/// Sums that another kernel goes on with.
template <typename Dot, int M, int NB>
inline __attribute__((always_inline)) void store_sums(const typename Dot::Acc (&acc)[M][NB],
                                                      const TileArgs& t) {
  using V = typename Dot::Vec;
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < NB; ++n)
      Dot::store(static_cast<typename Dot::Scalar*>(t.y) + m * t.y_step + n * V::kLanes, acc[m][n]);
  }
}

/// Panels side by side.
template <int NB>
inline __attribute__((always_inline)) void begin_panels(const uint8_t* (&panels)[NB], const TileArgs& t) {
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) panels[n] = t.b + n * t.b_panel;
}

/// The input of a tap: a base register for three pixels, base, base + step, base + 2 * step.
template <int kGroups>
inline __attribute__((always_inline)) void begin_rows(const uint8_t* (&rows)[kGroups], const TileArgs& t,
                                                      int64_t tap) {
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) rows[g] = t.a + t.taps[tap] + 3 * g * t.a_step;
}

template <int kGroups, int NB>
inline __attribute__((always_inline)) void advance(const uint8_t* (&rows)[kGroups],
                                                   const uint8_t* (&panels)[NB], int64_t row_bytes,
                                                   int64_t panel_bytes) {
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) {
    rows[g] += row_bytes;
    // Or the compiler keeps a pointer for every pixel, more than there are registers.
    __asm__("" : "+r"(rows[g]));
  }
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) panels[n] += panel_bytes;
}

/// Asks for what a tile of one pixel will read a while from now. Its weights come from memory, and processors foresee no more
/// than a page.
template <typename Dot, int NB>
inline __attribute__((always_inline)) void fetch_own(const uint8_t* const (&panels)[NB]) {
  constexpr int kAhead = 1536, kStep = 4 * Dot::kWeightBytes * Dot::Vec::kLanes;
#pragma GCC unroll 4
  for (int n = 0; n < NB; ++n) {
#pragma GCC unroll 4
    for (int line = 0; line < kStep; line += 64) __builtin_prefetch(panels[n] + kAhead + line);
  }
}

template <typename Dot, int M, int NB>
void tile(const TileArgs& t) {
  using V = typename Dot::Vec;
  typename Dot::Acc acc[M][NB];
  if constexpr (Dot::kStoresSums) {
    clear_sums<Dot, M, NB>(acc);
  } else {
    start_sums<Dot, M, NB>(acc, t);
  }
  const int64_t step = t.a_step;
  const uint8_t* panels[NB];
  begin_panels(panels, t);
  const uint8_t* ahead = t.ahead;
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const uint8_t* rows[(M + 2) / 3];
    begin_rows(rows, t, tap);
    int64_t left = t.tap_units;
    for (; left >= 4; left -= 4) {
      four_steps<Dot, M, NB>(acc, rows, step, panels);
      if constexpr (M == 1) {
        if (t.far) fetch_own<Dot>(panels);
      }
      __builtin_prefetch(ahead, 0, 2);       // into the second level
      __builtin_prefetch(ahead + 64, 0, 2);  // into the second level
      ahead += 128;
      advance(rows, panels, 16, 4 * Dot::kWeightBytes * V::kLanes);
    }
    for (; left > 0; --left) {
      tile_step<Dot, M, NB>(acc, rows, step, panels, 0);
      advance(rows, panels, 4, Dot::kWeightBytes * V::kLanes);
    }
  }
  if constexpr (Dot::kStoresSums) {
    store_sums<Dot, M, NB>(acc, t);
  } else {
    finish_sums<Dot, M, NB>(acc, t);
  }
}

// clang-format off
#define ULP_TILES_3(Dot, NB) nullptr, tile<Dot, 1, NB>, tile<Dot, 2, NB>, tile<Dot, 3, NB>
#define ULP_TILES_6(Dot, NB) ULP_TILES_3(Dot, NB), tile<Dot, 4, NB>, tile<Dot, 5, NB>, tile<Dot, 6, NB>
#define ULP_TILES_12(Dot, NB) ULP_TILES_6(Dot, NB), tile<Dot, 7, NB>, tile<Dot, 8, NB>, tile<Dot, 9, NB>, \
                              tile<Dot, 10, NB>, tile<Dot, 11, NB>, tile<Dot, 12, NB>
#define ULP_TILES_14(Dot, NB) ULP_TILES_12(Dot, NB), tile<Dot, 13, NB>, tile<Dot, 14, NB>
// clang-format on

}  // namespace
}  // namespace ulp::kernels
