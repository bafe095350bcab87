// Rows times panels of coded weights, as templates over a vector type; included by one file per instruction set.
// Everything has internal linkage. A weight is (code - zero) * scale, rounded, before it is multiplied: the
// numbers of the dense kernels.
#pragma once

#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

/// s8 codes, of one input after the other.
template <typename V>
struct Codes8 {
  static constexpr int kStep = 1;
  static const uint8_t* at(const WeightTileArgs& t, int64_t group, int64_t vector) {
    const int64_t channel = vector * V::kLanes;
    return t.codes + channel / kWeightLanes * t.panel_bytes + group * t.group * kWeightLanes +
           channel % kWeightLanes;
  }
  static constexpr int64_t kStepBytes = kWeightLanes;
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::load_s8(p);
  }
};

/// Words of eight codes of a channel.
template <typename V>
struct Codes4 {
  static constexpr int kStep = kCodesOfWord;
  static const uint8_t* at(const WeightTileArgs& t, int64_t group, int64_t vector) {
    const int64_t channel = vector * V::kLanes, words = (t.group + kStep - 1) / kStep;
    return t.codes + channel / kWeightLanes * t.panel_bytes +
           (group * words * kWeightLanes + channel % kWeightLanes) * 4;
  }
  static constexpr int64_t kStepBytes = kWeightLanes * 4;
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::template signed_nibble<kJ>(V::loadi(p));
  }
};

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

/// What the codes of a group of inputs become, for kVectors neighbouring vectors of channels.
template <typename V, int kVectors, bool kZero>
struct Decoder {
  typename V::F scale[kVectors], zero[kVectors];

  inline __attribute__((always_inline)) Decoder(const WeightTileArgs& t, int64_t group, int64_t vector) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const int64_t channel = (vector + n) * V::kLanes;
      const int64_t at = (channel / kWeightLanes * t.groups + group) * kWeightLanes + channel % kWeightLanes;
      scale[n] = V::loadf(t.scale + at);
      if constexpr (kZero) zero[n] = V::loadf(t.zero + at);
    }
  }
  inline __attribute__((always_inline)) typename V::F weight(int n, typename V::I code) const {
    typename V::F number = V::to_float(code);
    if constexpr (kZero) number = V::sub(number, zero[n]);
    return V::mul(number, scale[n]);
  }
};

/// The weights of one input for several rows; `k` counts from the input that x points to.
template <typename V, typename Codes, int kJ, int kRows, int kVectors, bool kZero>
inline __attribute__((always_inline)) void one_input(typename V::F (&sums)[kRows][kVectors],
                                                     const Decoder<V, kVectors, kZero>& decoder,
                                                     const uint8_t* const (&codes)[kVectors], int64_t offset,
                                                     const float* x, int64_t stride) {
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const typename V::F weight = decoder.weight(n, Codes::template load<kJ>(codes[n] + offset));
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) sums[m][n] = V::fma(V::set1(x[m * stride + kJ]), weight, sums[m][n]);
  }
}

/// All inputs of a step, or the first `left` of them.
template <typename V, typename Codes, int kJ, int kRows, int kVectors, bool kZero>
inline __attribute__((always_inline)) void inputs(typename V::F (&sums)[kRows][kVectors],
                                                  const Decoder<V, kVectors, kZero>& decoder,
                                                  const uint8_t* const (&codes)[kVectors], int64_t offset,
                                                  const float* x, int64_t stride, int64_t left) {
  if constexpr (kJ < Codes::kStep) {
    if (kJ >= left) return;
    one_input<V, Codes, kJ>(sums, decoder, codes, offset, x, stride);
    inputs<V, Codes, kJ + 1>(sums, decoder, codes, offset, x, stride, left);
  }
}

/// Words of 4-bit codes whose nibbles become numbers where they are: (code + 8) 2^4j times scale 2^-4j, less 8 scale, in one
/// fused step. That is code * scale rounded once, as Decoder has it, for scales that WeightTileArgs::usual_scales speaks of.
template <typename V, int kVectors>
struct MaskedDecoder {
  static constexpr int kPlaces = kCodesOfWord - 1;  // the highest nibble moves, or it would be a sign
  typename V::F scale[kPlaces][kVectors], middle[kVectors];

  inline __attribute__((always_inline))
  MaskedDecoder(const WeightTileArgs& t, int64_t group, int64_t vector) {
    const Decoder<V, kVectors, false> whole(t, group, vector);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      middle[n] = V::mul(whole.scale[n], V::set1(-8.0F));
#pragma GCC unroll 8
      for (int j = 0; j < kPlaces; ++j)
        scale[j][n] = V::mul(whole.scale[n], V::set1(1.0F / static_cast<float>(1U << (4 * j))));
    }
  }
  template <int kJ>
  inline __attribute__((always_inline)) typename V::F weight(int n, typename V::I word) const {
    return V::fma(V::to_float(V::template nibble_in_place<kJ>(word)), scale[kJ % kPlaces][n], middle[n]);
  }
};

template <typename V, int kJ, int kRows, int kVectors>
inline __attribute__((always_inline)) void masked_inputs(typename V::F (&sums)[kRows][kVectors],
                                                         const MaskedDecoder<V, kVectors>& decoder,
                                                         const typename V::I (&words)[kVectors],
                                                         const float* x, int64_t stride) {
  if constexpr (kJ < kCodesOfWord) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const typename V::F weight = decoder.template weight<kJ>(n, words[n]);
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) sums[m][n] = V::fma(V::set1(x[m * stride + kJ]), weight, sums[m][n]);
    }
    masked_inputs<V, kJ + 1>(sums, decoder, words, x, stride);
  }
}

/// Whole words of a group; returns how many inputs that are.
template <typename V, int kRows, int kVectors>
inline __attribute__((always_inline)) int64_t masked_words(typename V::F (&sums)[kRows][kVectors],
                                                           const WeightTileArgs& t, int64_t group,
                                                           int64_t vector, int64_t length,
                                                           const uint8_t* const (&codes)[kVectors],
                                                           const float* x) {
  const MaskedDecoder<V, kVectors> decoder(t, group, vector);
  int64_t k = 0;
  for (; k + kCodesOfWord <= length; k += kCodesOfWord) {
    const int64_t offset = k / kCodesOfWord * Codes4<V>::kStepBytes;
    prefetch_codes<V>(codes, offset);
    typename V::I words[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n)
      words[n] = V::xori(V::loadi(codes[n] + offset), V::seti(static_cast<int32_t>(0x88888888U)));
    masked_inputs<V, 0>(sums, decoder, words, x + k, t.x_stride);
  }
  return k;
}

/// Whether the vectors of an instruction set have what masked_words() takes.
template <typename V>
constexpr bool kMasksNibbles = requires(typename V::I v) {
  V::template nibble_in_place<0>(v);
};

template <typename V, typename Codes, int kRows, int kVectors, bool kZero>
void weight_tile(const WeightTileArgs& t, int64_t row, int64_t vector) {
  const int64_t channel = vector * V::kLanes;
  typename V::F sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const auto* bias = static_cast<const float*>(t.finish->bias) + t.channel + channel;
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) sums[m][n] = V::loadf(bias + n * V::kLanes);
  }
  const float* x = t.x + row * t.x_stride;
  for (int64_t group = 0, first = 0; first < t.in; ++group, first += t.group) {
    const Decoder<V, kVectors, kZero> decoder(t, group, vector);
    const uint8_t* codes[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) codes[n] = Codes::at(t, group, vector + n);
    const int64_t length = t.in - first < t.group ? t.in - first : t.group;
    int64_t k = 0, offset = 0;
    if constexpr (kMasksNibbles<V> && Codes::kStep == kCodesOfWord && !kZero) {
      if (t.usual_scales) {
        k = masked_words<V>(sums, t, group, vector, length, codes, x + first);
        offset = k / Codes::kStep * Codes::kStepBytes;
      }
    }
    constexpr int64_t kLine = 64 / Codes::kStepBytes;  // steps whose codes share a line
    for (; k + kLine * Codes::kStep <= length; k += kLine * Codes::kStep, offset += 64) {
      prefetch_codes<V>(codes, offset);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kLine; ++i)
        inputs<V, Codes, 0>(sums, decoder, codes, offset + i * Codes::kStepBytes,
                            x + first + k + i * Codes::kStep, t.x_stride, Codes::kStep);
    }
    for (; k + Codes::kStep <= length; k += Codes::kStep, offset += Codes::kStepBytes)
      inputs<V, Codes, 0>(sums, decoder, codes, offset, x + first + k, t.x_stride, Codes::kStep);
    if (k < length) inputs<V, Codes, 0>(sums, decoder, codes, offset, x + first + k, t.x_stride, length - k);
  }
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

/// All rows of a run of vectors: few rows leave registers for more of these.
template <typename V, typename Codes, bool kZero, int kVectors>
void weight_rows(const WeightTileArgs& t, int64_t vector) {
  int64_t row = 0;
  if constexpr (kVectors <= 2) {
    for (; row + 4 <= t.rows; row += 4) weight_tile<V, Codes, 4, kVectors, kZero>(t, row, vector);
  }
  for (; row + 2 <= t.rows; row += 2) weight_tile<V, Codes, 2, kVectors, kZero>(t, row, vector);
  if (row < t.rows) weight_tile<V, Codes, 1, kVectors, kZero>(t, row, vector);
}

template <typename V, typename Codes, bool kZero>
void weight_columns(const WeightTileArgs& t) {
  // Whole panels, so that no vector lies behind the codes.
  const int64_t vectors = (t.channels + kWeightLanes - 1) / kWeightLanes * (kWeightLanes / V::kLanes);
  int64_t vector = 0;
  if (t.rows < 4) {
    for (; vector + 4 <= vectors; vector += 4) weight_rows<V, Codes, kZero, 4>(t, vector);
  }
  for (; vector + 2 <= vectors; vector += 2) weight_rows<V, Codes, kZero, 2>(t, vector);
  if (vector < vectors) weight_rows<V, Codes, kZero, 1>(t, vector);
}

template <typename V, typename Codes>
void multiply_codes(const WeightTileArgs& t) {
  t.zero == nullptr ? weight_columns<V, Codes, false>(t) : weight_columns<V, Codes, true>(t);
}

template <typename V, typename Codes, int kJ, bool kZero>
inline __attribute__((always_inline)) void unpack_inputs(const Decoder<V, 1, kZero>& decoder,
                                                         const uint8_t* codes, float* to, int64_t left) {
  if constexpr (kJ < Codes::kStep) {
    if (kJ >= left) return;
    V::storef(to + kJ * V::kLanes, decoder.weight(0, Codes::template load<kJ>(codes)));
    unpack_inputs<V, Codes, kJ + 1>(decoder, codes, to, left);
  }
}

template <typename V, typename Codes, bool kZero>
void unpack_vector(const WeightTileArgs& t, int64_t vector, float* to) {
  for (int64_t group = 0, first = 0; first < t.in; ++group, first += t.group) {
    const Decoder<V, 1, kZero> decoder(t, group, vector);
    const uint8_t* codes = Codes::at(t, group, vector);
    const int64_t last = t.in - first < t.group ? t.in : first + t.group;
    for (int64_t k = first; k < last; k += Codes::kStep, codes += Codes::kStepBytes)
      unpack_inputs<V, Codes, 0>(decoder, codes, to + k * V::kLanes, last - k);
  }
}

template <typename V, typename Codes>
void unpack_codes(const WeightTileArgs& t, float* to) {
  const int64_t vectors = (t.channels + V::kLanes - 1) / V::kLanes;
  for (int64_t vector = 0; vector < vectors; ++vector, to += t.in * V::kLanes) {
    t.zero == nullptr ? unpack_vector<V, Codes, false>(t, vector, to)
                      : unpack_vector<V, Codes, true>(t, vector, to);
  }
}

/// Of one instruction set.
template <typename V>
constexpr WeightTiles weight_tiles() {
  return {{multiply_codes<V, Codes8<V>>, unpack_codes<V, Codes8<V>>},
          {multiply_codes<V, Codes4<V>>, unpack_codes<V, Codes4<V>>}};
}

}  // namespace
}  // namespace ulp::kernels
