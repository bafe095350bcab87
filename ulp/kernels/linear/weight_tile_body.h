// Rows times a panel of coded weights, on vectors of the compiler. Included once by a file per instruction
// set, which names its table with ULP_WEIGHT_TILES and gives the rows that fit its registers; everything here
// has internal linkage.
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "ulp/kernels/common/compiler.h"
#include "ulp/kernels/elementwise/curves.h"
#include "ulp/kernels/linear/weight_tile.h"

namespace ulp::kernels {
namespace {

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
/// As they may lie in memory: a variable of such a type would promise less than the compiler takes it to be.
typedef float StoredFloats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint8_t StoredBytes __attribute__((vector_size(16), aligned(1), may_alias));

inline __attribute__((always_inline)) Floats load(const float* p) {
  return *reinterpret_cast<const StoredFloats*>(p);
}

/// 16 bytes with or without a sign. GCC takes __builtin_convertvector to four times the width apart, byte by byte.
template <bool kSigned>
inline __attribute__((always_inline)) Ints widen(const uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<Ints>(kSigned ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  Ints made;
  for (int half = 0; half < 2; ++half) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * half));
    const __m256i wide = kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    __builtin_memcpy(reinterpret_cast<char*>(&made) + 32 * half, &wide, 32);
  }
  return made;
#else
  typedef int8_t SignedBytes __attribute__((vector_size(16)));
  const Bytes bytes = *reinterpret_cast<const StoredBytes*>(p);
  if (kSigned) return __builtin_convertvector(reinterpret_cast<SignedBytes>(bytes), Ints);
  return __builtin_convertvector(bytes, Ints);
#endif
}

/// (code - zero) * scale of 16 channels.
struct Decoder {
  Floats zero, scale;
  inline __attribute__((always_inline)) Floats of(Ints codes) const {
    return (__builtin_convertvector(codes, Floats) - zero) * scale;
  }
};

/// s8 codes: calls use(k, weights) for k of one group.
struct Codes8 {
  template <typename Use>
  static inline __attribute__((always_inline)) void each(const WeightTileArgs& t, const Decoder& decoder,
                                                         int64_t first, int64_t last, const Use& use) {
    for (int64_t k = first; k < last; ++k) use(k, decoder.of(widen<true>(t.codes + k * kWeightLanes)));
  }
};

/// Two codes a byte; groups begin at even k.
struct Codes4 {
  template <typename Use>
  static inline __attribute__((always_inline)) void each(const WeightTileArgs& t, const Decoder& decoder,
                                                         int64_t first, int64_t last, const Use& use) {
    int64_t k = first;
    for (; k + 2 <= last; k += 2) {
      const Ints both = widen<false>(t.codes + k / 2 * kWeightLanes);
      use(k, decoder.of(both & 15));
      use(k + 1, decoder.of(both >> 4));
    }
    if (k < last) {
      use(k, decoder.of(widen<false>(t.codes + k / 2 * kWeightLanes) & 15));
    }
  }
};

/// The same over all groups.
template <typename Codes, typename Use>
inline __attribute__((always_inline)) void each_weight(const WeightTileArgs& t, const Use& use) {
  for (int64_t first = 0, g = 0; first < t.in; first += t.group, ++g) {
    const int64_t last = first + t.group < t.in ? first + t.group : t.in;
    const Decoder decoder{load(t.zero + g * kWeightLanes), load(t.scale + g * kWeightLanes)};
    Codes::each(t, decoder, first, last, use);
  }
}

/// One copy serves the tiles of all sizes.
ULP_ONE_COPY void finish_row(const WeightTileArgs& t, int64_t row, const float* sums) {
  const float* residual = t.residual == nullptr ? nullptr : t.residual + row * t.y_stride;
  float* y = t.y + row * t.y_stride;
  for (int64_t c = 0; c < t.channels; ++c) {
    float v = sums[c] + t.bias[c];
    if (residual != nullptr) v += residual[c];
    v = v < t.lo ? t.lo : v;
    y[c] = v > t.hi ? t.hi : v;
  }
  if (t.curve != Activation::none) apply_curve(t.curve, y, y, t.channels);
}

void finish(const WeightTileArgs& t) {
  for (int64_t row = 0; row < t.rows; ++row) finish_row(t, row, t.y + row * t.y_stride);
}

template <typename Codes, int kRows>
void tile(const WeightTileArgs& t, int64_t row) {
  Floats sums[kRows] = {};
  const float* x = t.x + row * t.x_stride;
  each_weight<Codes>(
      t, [&](int64_t k, Floats w) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) sums[m] += x[m * t.x_stride + k] * w;
      });
  for (int m = 0; m < kRows; ++m) {
    float values[kWeightLanes];
    *reinterpret_cast<StoredFloats*>(values) = sums[m];
    finish_row(t, row + m, values);
  }
}

template <typename Codes>
void rows(const WeightTileArgs& t) {
  int64_t row = 0;
  for (; row + ULP_WEIGHT_ROWS <= t.rows; row += ULP_WEIGHT_ROWS) tile<Codes, ULP_WEIGHT_ROWS>(t, row);
  for (; row + 2 <= t.rows; row += 2) tile<Codes, 2>(t, row);
  if (row < t.rows) tile<Codes, 1>(t, row);
}

template <typename Codes>
void unpack(const WeightTileArgs& t, float* to, int64_t stride) {
  each_weight<Codes>(
      t, [&](int64_t k, Floats w)
             __attribute__((always_inline)) { *reinterpret_cast<StoredFloats*>(to + k * stride) = w; });
}

}  // namespace

extern const WeightTiles ULP_WEIGHT_TILES;
const WeightTiles ULP_WEIGHT_TILES = {{rows<Codes8>, unpack<Codes8>}, {rows<Codes4>, unpack<Codes4>}, finish};

}  // namespace ulp::kernels
