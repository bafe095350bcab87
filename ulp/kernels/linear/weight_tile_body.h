// Rows times panels of coded weights, as templates over a vector type; included by one file per instruction set.
// Everything has internal linkage. The order of sums is that of few rows in weight_linear.h.
#pragma once

#include "ulp/kernels/conv/tile_body.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

constexpr int64_t kLineBytes = 64;  // codes of a panel that are read in one step
constexpr int64_t kAhead = 2048;    // bytes from the codes at work to those that are asked for

/// s8 codes, of one input after the other.
template <typename V>
struct Codes8 {
  static constexpr int kStep = 4;  // inputs whose codes of a panel share a line
  static int64_t group_bytes(const WeightTileArgs& t) { return t.group * kWeightLanes; }
  static constexpr int64_t kLaneBytes = 1;
  /// The code of input kJ of a step.
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::load_s8(p + kJ * kWeightLanes);
  }
};

/// Words of eight codes of a channel.
template <typename V>
struct Codes4 {
  static constexpr int kStep = kCodesOfWord;
  static int64_t group_bytes(const WeightTileArgs& t) { return (t.group + kStep - 1) / kStep * kLineBytes; }
  static constexpr int64_t kLaneBytes = 4;
  /// Less 8.
  template <int kJ>
  static inline __attribute__((always_inline)) typename V::I load(const uint8_t* p) {
    return V::template signed_nibble<kJ>(V::xori(V::loadi(p), V::seti(static_cast<int32_t>(0x88888888U))));
  }
};

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
  template <bool kZero>
  inline __attribute__((always_inline)) void begin(const WeightTileArgs& t, int64_t row, int64_t group,
                                                   int64_t vector) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        parts[0][m][n] = parts[1][m][n] = V::set1(0);
        if constexpr (kZero) {
          parts[0][m][n] = V::mul(V::set1(t.negative_sums[(row + m) * t.groups + group]),
                                  V::loadf(t.zero + scale_at<V>(t, group, vector + n)));
        }
      }
    }
  }

  /// Adds the inputs of a step from kJ on, or those of the first `left`.
  template <int kJ>
  inline __attribute__((always_inline)) void add(const uint8_t* const (&codes)[kVectors], int64_t offset,
                                                 const float* x, int64_t stride, int64_t left) {
    if constexpr (kJ < Codes8<V>::kStep) {
      if (kJ >= left) return;
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        const typename V::F code = V::to_float(Codes8<V>::template load<kJ>(codes[n] + offset));
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) {
          typename V::F& part = parts[kJ % 2][m][n];
          part = V::fma(V::set1(x[m * stride + kJ]), code, part);
        }
      }
      add<kJ + 1>(codes, offset, x, stride, left);
    }
  }

  inline __attribute__((always_inline)) typename V::F sum(int m, int n) const {
    return V::add(parts[0][m][n], parts[1][m][n]);
  }
};

/// The products of s8 codes and inputs.
template <typename Vec, bool kZero>
struct FloatGroups {
  using V = Vec;
  using Codes = Codes8<V>;
  static constexpr int kRows = 4;  // side by side

  /// Those of a group of inputs, times the scales, to the sums.
  template <int kRows, int kVectors>
  static inline __attribute__((always_inline)) void add(typename V::F (&sums)[kRows][kVectors],
                                                        const WeightTileArgs& t, int64_t row, int64_t group,
                                                        int64_t vector, int64_t length) {
    const uint8_t* codes[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) codes[n] = codes_at<V, Codes>(t, group, vector + n);
    const float* x = t.x + row * t.x_stride + group * t.x_group;
    GroupSums<V, kRows, kVectors> of_group;
    of_group.template begin<kZero>(t, row, group, vector);
    int64_t k = 0, offset = 0;
    for (; k + Codes::kStep <= length; k += Codes::kStep, offset += kLineBytes) {
      prefetch_codes<V>(codes, offset);
      of_group.template add<0>(codes, offset, x + k, t.x_stride, Codes::kStep);
    }
    if (k < length) of_group.template add<0>(codes, offset, x + k, t.x_stride, length - k);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const typename V::F scale = V::loadf(t.scale + scale_at<V>(t, group, vector + n));
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) sums[m][n] = V::fma(of_group.sum(m, n), scale, sums[m][n]);
    }
  }
};

/// The products of 4-bit codes and inputs in digits. Dot: products of bytes, four a lane, in parts that hold those of
/// kWords words; registers serve kRows rows side by side.
template <typename Vec, typename Dot>
struct DigitGroups {
  using V = Vec;
  using Codes = Codes4<V>;
  using I = typename V::I;
  using F = typename V::F;
  static constexpr int kRows = Dot::kRows;
  static constexpr int64_t kGroupsAhead = 4;  // of scales: too few of a panel for the processor to foresee

  /// Adds those of up to kWords words.
  template <int kRows, int kVectors>
  static inline __attribute__((always_inline)) void add_words(I (&dots)[kVectors][kRows][kDigits],
                                                              const uint8_t* const (&codes)[kVectors],
                                                              int64_t offset, const int32_t* x,
                                                              int64_t stride, int64_t words) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      typename Dot::Part parts[kRows][kDigits];
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d) parts[m][d] = Dot::begin(dots[n][m][d]);
      }
      for (int64_t w = 0; w < words; ++w) {
        const I word = V::loadi(codes[n] + offset + w * kLineBytes);
        const I even = V::template nibbles<0>(word), odd = V::template nibbles<1>(word);
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) {
          const int32_t* digits = x + m * stride + w * kDigitWords;
#pragma GCC unroll 3
          for (int d = 0; d < kDigits; ++d) {
            parts[m][d] = Dot::add(parts[m][d], even, V::seti(digits[d]));
            parts[m][d] = Dot::add(parts[m][d], odd, V::seti(digits[kDigits + d]));
          }
        }
      }
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d) dots[n][m][d] = Dot::end(dots[n][m][d], parts[m][d]);
      }
    }
  }

  template <int kRows, int kVectors>
  static inline __attribute__((always_inline)) void add(F (&sums)[kRows][kVectors], const WeightTileArgs& t,
                                                        int64_t row, int64_t group, int64_t vector,
                                                        int64_t length) {
    const uint8_t* codes[kVectors];
    const DigitGroup* starts = t.starts + row * t.groups + group;
    const int32_t* x = t.digits + row * t.x_stride + group * t.x_group;
    I dots[kVectors][kRows][kDigits];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      codes[n] = codes_at<V, Codes>(t, group, vector + n);
      __builtin_prefetch(t.scale + scale_at<V>(t, group + kGroupsAhead, vector + n));
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d) dots[n][m][d] = V::seti(starts[m * t.groups].start[d]);
      }
    }
    const int64_t words = (length + kCodesOfWord - 1) / kCodesOfWord;
    for (int64_t w = 0; w < words; w += Dot::kWords) {
#pragma GCC unroll 4
      for (int i = 0; i < Dot::kWords; ++i) prefetch_codes<V>(codes, (w + i) * kLineBytes);
      const int64_t left = Dot::kWords == 1 ? 1 : words - w;
      add_words(dots, codes, w * kLineBytes, x + w * kDigitWords, t.x_stride,
                left < Dot::kWords ? left : Dot::kWords);
    }
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const int64_t at = scale_at<V>(t, group, vector + n);
      const F scale = V::loadf(t.scale + at);
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        const I(&dot)[kDigits] = dots[n][m];
        F sum = V::fma(V::to_float(dot[1]), V::set1(0x1p8F), V::to_float(dot[0]));
        sum = V::mul(V::fma(V::to_float(dot[2]), V::set1(0x1p16F), sum), V::set1(starts[m * t.groups].unit));
        const int64_t in_row = (row + m) * t.groups + group;
        if (t.zero != nullptr) sum = V::fma(V::set1(t.negative_sums[in_row]), V::loadf(t.zero + at), sum);
        sums[m][n] = V::fma(sum, scale, sums[m][n]);
        if (t.minimum != nullptr)
          sums[m][n] = V::fma(V::set1(t.negative_sums[in_row]), V::loadf(t.minimum + at), sums[m][n]);
      }
    }
  }
};

/// Dot of x86-64 without VNNI: 16 bits hold eight sums of two products.
template <typename V, int kRowsAtOnce>
struct DotPairs {
  using I = typename V::I;
  using Part = I;
  static constexpr int kWords = 4, kRows = kRowsAtOnce;
  static Part begin(I) { return V::seti(0); }
  static Part add(Part part, I codes, I digits) { return V::add16(part, V::madd8(codes, digits)); }
  static I end(I sum, Part part) { return V::addi(sum, V::madd16(part, V::seti(0x10001))); }
};

template <typename Groups, int kRows, int kVectors>
void weight_tile(const WeightTileArgs& t, int64_t row, int64_t vector) {
  using V = typename Groups::V;
  const int64_t channel = vector * V::kLanes;
  typename V::F sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const auto* bias = static_cast<const float*>(t.finish->bias) + t.channel + channel;
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) sums[m][n] = V::loadf(bias + n * V::kLanes);
  }
  for (int64_t group = 0; group < t.groups; ++group) {
    const int64_t left = t.in - group * t.group;
    Groups::add(sums, t, row, group, vector, left < t.group ? left : t.group);
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

/// All channels from a vector on, kVectors of them side by side as long as there are as many.
template <typename Groups, int kRows, int kVectors>
void weight_columns(const WeightTileArgs& t, int64_t row, int64_t vector) {
  // Whole panels, so that no vector lies behind the codes.
  constexpr int64_t kOfPanel = kWeightLanes / Groups::V::kLanes;
  const int64_t vectors = (t.channels + kWeightLanes - 1) / kWeightLanes * kOfPanel;
  for (; vector + kVectors <= vectors; vector += kVectors)
    weight_tile<Groups, kRows, kVectors>(t, row, vector);
  if constexpr (kVectors > 1) weight_columns<Groups, kRows, kVectors / 2>(t, row, vector);
}

/// Few rows leave registers for more vectors.
template <typename Groups>
void weight_rows(const WeightTileArgs& t) {
  int64_t row = 0;
  if constexpr (Groups::kRows == 4) {
    for (; row + 4 <= t.rows; row += 4) weight_columns<Groups, 4, 1>(t, row, 0);
  }
  for (; row + 2 <= t.rows; row += 2) weight_columns<Groups, 2, 2>(t, row, 0);
  if (row < t.rows) weight_columns<Groups, 1, 4>(t, row, 0);
}

template <typename V>
void multiply_codes(const WeightTileArgs& t) {
  t.zero == nullptr ? weight_rows<FloatGroups<V, false>>(t) : weight_rows<FloatGroups<V, true>>(t);
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
    const typename V::F number = V::add(V::to_float(code), V::set1(8));
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
      for (int64_t k = first; k < last; k += Codes::kStep, codes += kLineBytes) {
        __builtin_prefetch(codes + kAhead);
        unpack_inputs<V, Codes, 0>(decoder, codes, to + k * V::kLanes, last - k);
      }
    }
  }
}

template <typename V, typename Codes>
void unpack_codes(const WeightTileArgs& t, float* to) {
  t.zero == nullptr ? unpack_vectors<V, Codes, Decoder<V, false>>(t, to)
                    : unpack_vectors<V, Codes, Decoder<V, true>>(t, to);
}

template <typename V>
void unpack_nibbles(const WeightTileArgs& t, float* to) {
  if (t.minimum != nullptr) return unpack_vectors<V, Codes4<V>, MinimumDecoder<V>>(t, to);
  unpack_codes<V, Codes4<V>>(t, to);
}

/// Of one instruction set.
template <typename V>
constexpr WeightTiles weight_tiles() {
  return {multiply_codes<V>, unpack_codes<V, Codes8<V>>, unpack_nibbles<V>};
}

}  // namespace
}  // namespace ulp::kernels
