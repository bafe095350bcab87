// Rows times panels of coded weights, as templates over a vector type; included by one file per instruction set.
// Everything has internal linkage. The order of sums is that of few rows in weight_linear.h.
#pragma once

#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kLineBytes = 64;  // codes of a panel that are read in one step

/// s8 codes, of one input after the other.
template <typename V>
struct Codes8 {
  static constexpr int kStep = 4;      // inputs whose codes of a panel share a line
  static constexpr float kMiddle = 0;  // what in_place() has more than load()
  static int64_t group_bytes(const WeightTileArgs& t) { return t.group * kWeightLanes; }
  static constexpr int64_t kLaneBytes = 1;
  /// The code of input kJ of a step.
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::load_s8(p + kJ * kWeightLanes);
  }
  /// The code as numbers that WeightTileArgs::x multiplies.
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I in_place(const uint8_t* p) {
    return load<kJ>(p);
  }
};

/// Words of eight codes of a channel.
template <typename V>
struct Codes4 {
  static constexpr int kStep = kCodesOfWord;
  static constexpr float kMiddle = 8;
  static int64_t group_bytes(const WeightTileArgs& t) { return (t.group + kStep - 1) / kStep * kLineBytes; }
  static constexpr int64_t kLaneBytes = 4;
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::template signed_nibble<kJ>(V::xori(V::loadi(p), V::seti(static_cast<int32_t>(0x88888888U))));
  }
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I in_place(const uint8_t* p) {
    return V::template nibble_in_place<kJ>(V::loadi(p));
  }
};

/// Whether a layer of such codes may have minima. That is asked as it runs: templates of their own would be large.
template <typename Codes, bool kZero>
constexpr bool has_minima() {
  return Codes::kMiddle != 0 && !kZero;
}

/// The codes of a group, from the first channel of a vector on.
template <typename V, typename Codes>
const uint8_t* codes_at(const WeightTileArgs& t, int64_t group, int64_t vector) {
  const int64_t channel = vector * V::kLanes;
  return t.codes + channel / kWeightLanes * t.panel_bytes + group * Codes::group_bytes(t) +
         channel % kWeightLanes * Codes::kLaneBytes;
}

/// Where the scale and the zero point of a group and of the first channel of a vector are.
template <typename V>
int64_t scale_at(const WeightTileArgs& t, int64_t group, int64_t vector) {
  const int64_t channel = vector * V::kLanes;
  return (channel / kWeightLanes * t.groups + group) * kWeightLanes + channel % kWeightLanes;
}

/// Asks for the codes that all vectors will read a while from now. Processors foresee no more than a page, and a panel is many
/// pages.
template <typename V, int kVectors>
inline __attribute__((always_inline)) void prefetch_codes(const uint8_t* const (&codes)[kVectors],
                                                          int64_t offset) {
  constexpr int64_t kAhead = 1536;
  constexpr int kOfPanel = kWeightLanes / V::kLanes < kVectors ? kWeightLanes / V::kLanes : kVectors;
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; n += kOfPanel) __builtin_prefetch(codes[n] + offset + kAhead);
}

/// Sums over a group of inputs, those of even and those of odd ones apart: twice as many that do not wait for
/// each other.
template <typename V, int kRows, int kVectors>
struct GroupSums {
  typename V::F parts[2][kRows][kVectors];

  /// Begins with what the zero points take away.
  template <typename Codes, bool kZero>
  inline __attribute__((always_inline)) void begin(const WeightTileArgs& t, int64_t row, int64_t group,
                                                   int64_t vector) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      typename V::F zero = V::set1(Codes::kMiddle);
      if constexpr (has_minima<Codes, kZero>()) zero = V::set1(t.minimum == nullptr ? Codes::kMiddle : 0);
      if constexpr (kZero) zero = V::add(zero, V::loadf(t.zero + scale_at<V>(t, group, vector + n)));
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        parts[0][m][n] = parts[1][m][n] = V::set1(0);
        if constexpr (kZero || Codes::kMiddle != 0)
          parts[0][m][n] = V::mul(V::set1(t.negative_sums[(row + m) * t.groups + group]), zero);
      }
    }
  }

  /// Adds the inputs of a step from kJ on, or those of the first `left`.
  template <typename Codes, int kJ>
  inline __attribute__((always_inline)) void add(const uint8_t* const (&codes)[kVectors], int64_t offset,
                                                 const float* x, int64_t stride, int64_t left) {
    if constexpr (kJ < Codes::kStep) {
      if (kJ >= left) return;
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        const typename V::F code = V::to_float(Codes::template in_place<kJ>(codes[n] + offset));
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) {
          typename V::F& part = parts[kJ % 2][m][n];
          part = V::fma(V::set1(x[m * stride + kJ]), code, part);
        }
      }
      add<Codes, kJ + 1>(codes, offset, x, stride, left);
    }
  }

  inline __attribute__((always_inline)) typename V::F sum(int m, int n) const {
    return V::add(parts[0][m][n], parts[1][m][n]);
  }
};

/// What the minima of a group take away.
template <typename V, int kRows, int kVectors>
inline __attribute__((always_inline)) void subtract_minima(typename V::F (&sums)[kRows][kVectors],
                                                           const WeightTileArgs& t, int64_t row,
                                                           int64_t group, int64_t vector) {
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const typename V::F minimum = V::loadf(t.minimum + scale_at<V>(t, group, vector + n));
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const typename V::F negative_sum = V::set1(t.negative_sums[(row + m) * t.groups + group]);
      sums[m][n] = V::fma(negative_sum, minimum, sums[m][n]);
    }
  }
}

/// The products of a group of inputs, times the scales, to the sums.
template <typename V, typename Codes, bool kZero, int kRows, int kVectors>
inline __attribute__((always_inline)) void add_group(typename V::F (&sums)[kRows][kVectors],
                                                     const WeightTileArgs& t, int64_t row, int64_t group,
                                                     int64_t vector) {
  const uint8_t* codes[kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) codes[n] = codes_at<V, Codes>(t, group, vector + n);
  const float* x = t.x + row * t.x_stride + group * t.x_group;
  const int64_t left = t.in - group * t.group, length = left < t.group ? left : t.group;
  GroupSums<V, kRows, kVectors> of_group;
  of_group.template begin<Codes, kZero>(t, row, group, vector);
  int64_t k = 0, offset = 0;
  for (; k + Codes::kStep <= length; k += Codes::kStep, offset += kLineBytes) {
    prefetch_codes<V>(codes, offset);
    of_group.template add<Codes, 0>(codes, offset, x + k, t.x_stride, Codes::kStep);
  }
  if (k < length) of_group.template add<Codes, 0>(codes, offset, x + k, t.x_stride, length - k);
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const typename V::F scale = V::loadf(t.scale + scale_at<V>(t, group, vector + n));
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) sums[m][n] = V::fma(of_group.sum(m, n), scale, sums[m][n]);
  }
  if constexpr (has_minima<Codes, kZero>()) {
    if (t.minimum != nullptr) subtract_minima<V>(sums, t, row, group, vector);
  }
}

template <typename V, typename Codes, bool kZero, int kRows, int kVectors>
void weight_tile(const WeightTileArgs& t, int64_t row, int64_t vector) {
  const int64_t channel = vector * V::kLanes;
  typename V::F sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const auto* bias = static_cast<const float*>(t.finish->bias) + t.channel + channel;
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) sums[m][n] = V::loadf(bias + n * V::kLanes);
  }
  for (int64_t group = 0; group < t.groups; ++group) add_group<V, Codes, kZero>(sums, t, row, group, vector);
  alignas(64) float stored[kRows * kVectors * V::kLanes];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) V::storef(stored + (m * kVectors + n) * V::kLanes, sums[m][n]);
  }
  const int64_t at = row * t.y_stride + channel;
  const auto finish = [&](auto how) {
    how(stored, kRows, kVectors, *t.finish, t.channel + channel, t.channels - channel, t.y + at,
        t.residual == nullptr ? nullptr : t.residual + at, t.y_stride);
  };
  t.finish->curve == Activation::none ? finish(finish_tile<DotF32<V>>) : finish(finish_curve<DotF32<V>>);
}

/// All channels from a vector on, kVectors of them side by side as long as there are as many.
template <typename V, typename Codes, bool kZero, int kRows, int kVectors>
void weight_columns(const WeightTileArgs& t, int64_t row, int64_t vector) {
  // Whole panels, so that no vector lies behind the codes.
  const int64_t vectors = (t.channels + kWeightLanes - 1) / kWeightLanes * (kWeightLanes / V::kLanes);
  for (; vector + kVectors <= vectors; vector += kVectors)
    weight_tile<V, Codes, kZero, kRows, kVectors>(t, row, vector);
  if constexpr (kVectors > 1) weight_columns<V, Codes, kZero, kRows, kVectors / 2>(t, row, vector);
}

/// Few rows leave registers for more vectors.
template <typename V, typename Codes, bool kZero>
void weight_rows(const WeightTileArgs& t) {
  int64_t row = 0;
  for (; row + 4 <= t.rows; row += 4) weight_columns<V, Codes, kZero, 4, 1>(t, row, 0);
  for (; row + 2 <= t.rows; row += 2) weight_columns<V, Codes, kZero, 2, 2>(t, row, 0);
  if (row < t.rows) weight_columns<V, Codes, kZero, 1, 4>(t, row, 0);
}

template <typename V, typename Codes>
void multiply_codes(const WeightTileArgs& t) {
  t.zero == nullptr ? weight_rows<V, Codes, false>(t) : weight_rows<V, Codes, true>(t);
}

/// What the codes of a group of inputs become for many rows: (code - zero) * scale, rounded.
template <typename V, bool kZero>
struct Decoder {
  typename V::F scale, zero;

  inline __attribute__((always_inline)) Decoder(const WeightTileArgs& t, int64_t group, int64_t vector) {
    const int64_t at = scale_at<V>(t, group, vector);
    scale = V::loadf(t.scale + at);
    if constexpr (kZero) zero = V::loadf(t.zero + at);
  }
  inline __attribute__((always_inline)) typename V::F weight(typename V::I code) const {
    typename V::F number = V::to_float(code);
    if constexpr (kZero) number = V::sub(number, zero);
    return V::mul(number, scale);
  }
};

/// The same where there are minima: code * scale - minimum, rounded twice.
template <typename V>
struct MinimumDecoder {
  typename V::F scale, minimum;

  inline __attribute__((always_inline))
  MinimumDecoder(const WeightTileArgs& t, int64_t group, int64_t vector) {
    const int64_t at = scale_at<V>(t, group, vector);
    scale = V::loadf(t.scale + at);
    minimum = V::loadf(t.minimum + at);
  }
  /// `code`: without the 8 that it stands for, which float32 adds exactly.
  inline __attribute__((always_inline)) typename V::F weight(typename V::I code) const {
    const typename V::F number = V::add(V::to_float(code), V::set1(Codes4<V>::kMiddle));
    return V::sub(V::mul(number, scale), minimum);
  }
};

template <typename V, typename Codes, int kJ, typename Decoding>
inline __attribute__((always_inline)) void unpack_inputs(const Decoding& decoder, const uint8_t* codes,
                                                         float* to, int64_t left) {
  if constexpr (kJ < Codes::kStep) {
    if (kJ >= left) return;
    V::storef(to + kJ * V::kLanes, decoder.weight(Codes::template load<kJ>(codes)));
    unpack_inputs<V, Codes, kJ + 1>(decoder, codes, to, left);
  }
}

template <typename V, typename Codes, typename Decoding>
void unpack_vectors(const WeightTileArgs& t, float* to) {
  const int64_t vectors = (t.channels + V::kLanes - 1) / V::kLanes;
  for (int64_t vector = 0; vector < vectors; ++vector, to += t.in * V::kLanes) {
    for (int64_t group = 0, first = 0; first < t.in; ++group, first += t.group) {
      const Decoding decoder(t, group, vector);
      const uint8_t* codes = codes_at<V, Codes>(t, group, vector);
      const int64_t last = t.in - first < t.group ? t.in : first + t.group;
      for (int64_t k = first; k < last; k += Codes::kStep, codes += kLineBytes)
        unpack_inputs<V, Codes, 0>(decoder, codes, to + k * V::kLanes, last - k);
    }
  }
}

template <typename V, typename Codes>
void unpack_codes(const WeightTileArgs& t, float* to) {
  if constexpr (has_minima<Codes, false>()) {
    if (t.minimum != nullptr) return unpack_vectors<V, Codes, MinimumDecoder<V>>(t, to);
  }
  t.zero == nullptr ? unpack_vectors<V, Codes, Decoder<V, false>>(t, to)
                    : unpack_vectors<V, Codes, Decoder<V, true>>(t, to);
}

/// Of one instruction set.
template <typename V>
constexpr WeightTiles weight_tiles() {
  return {{multiply_codes<V, Codes8<V>>, unpack_codes<V, Codes8<V>>},
          {multiply_codes<V, Codes4<V>>, unpack_codes<V, Codes4<V>>}};
}

}  // namespace
}  // namespace ulp::kernels
