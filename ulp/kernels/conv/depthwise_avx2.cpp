// Depthwise convolution of bytes into bytes under AVX2, 16 channels at a time. Bytes of two rows of the window side by side,
// widened, are what one vpmaddwd takes: two products of eight channels, exact. What is widened for one column serves all
// outputs whose windows it lies in.
#include "ulp/kernels/conv/depthwise_body.h"
#include "ulp/kernels/isa/vec256.h"

namespace ulp::kernels {
namespace {

using V = Vec256;
using Dot = DotI16<V>;

constexpr int64_t kChannels = 16;   // of a block
constexpr int64_t kColumn = 64;     // bytes of the weights of a block: one column of two rows
constexpr int64_t kMostPixels = 4;  // whose sums stay in registers

/// 16 channels. The last block of a layer ends with its last channel: the first ones of it may belong to the block before.
struct Block {
  const uint8_t* weights;
  int64_t channel, done;  ///< the first channel, and how many are not the block's own
};

/// A column of a block's input in one row or two: pairs of 16 bits, the second one 0 where there is one row.
struct Column {
  __m256i low, high;  // channels 0 to 7 and 8 to 15
};

template <bool kTwo>
inline __attribute__((always_inline)) Column load_column(const uint8_t* top, const uint8_t* bottom) {
  if constexpr (!kTwo) return {V::load_u8(top), V::load_u8(top + 8)};
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(top));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bottom));
  return {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(x, y)), _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(x, y))};
}

inline __attribute__((always_inline)) void add_column(__m256i (&sums)[2], const Column& x, const uint8_t* w) {
  sums[0] = Dot::dot(sums[0], x.low, V::loadi(w));
  sums[1] = Dot::dot(sums[1], x.high, V::loadi(w + 32));
}

/// One row of the window, or two, for P neighbours of a row of outputs. `at`: where the channels of the first one begin.
template <int KW, int S, int P, bool kTwo>
inline __attribute__((always_inline)) void add_rows(__m256i (&acc)[P][2], const DepthwiseArgs& t,
                                                    const uint8_t* at, int64_t row, const uint8_t* w) {
  const uint8_t* top = at + t.taps[row * KW];
  const uint8_t* bottom = kTwo ? at + t.taps[(row + 1) * KW] : top;
#pragma GCC unroll 16
  for (int j = 0; j < (P - 1) * S + KW; ++j) {
    const Column x = load_column<kTwo>(top + j * t.column_bytes, bottom + j * t.column_bytes);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const int k = j - p * S;
      if (k >= 0 && k < KW) add_column(acc[p], x, w + k * kColumn);
    }
  }
}

/// The same for windows and strides of any width, and for columns further apart.
template <int P, bool kTwo>
inline __attribute__((always_inline)) void add_rows_of_any(__m256i (&acc)[P][2], const DepthwiseArgs& t,
                                                           const uint8_t* at, int64_t row, const uint8_t* w) {
  const int64_t* top = t.taps + row * t.kernel_w;
  const int64_t* bottom = kTwo ? top + t.kernel_w : top;
  for (int64_t k = 0; k < t.kernel_w; ++k, w += kColumn) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint8_t* own = at + p * t.a_step;
      add_column(acc[p], load_column<kTwo>(own + top[k], own + bottom[k]), w);
    }
  }
}

/// The sums of P pixels of a block -> `out`.
template <int P>
inline __attribute__((always_inline)) void finish_sums(__m256i (&acc)[P][2], const TileArgs& out) {
  if (out.finish->curve == Activation::none) {
    return out.residual == nullptr ? finish_bytes<V, P, 2, false>(acc, out)
                                   : finish_bytes<V, P, 2, true>(acc, out);
  }
  alignas(64) int32_t sums[P * kChannels];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    V::storei(sums + p * kChannels, acc[p][0]);
    V::storei(sums + p * kChannels + 8, acc[p][1]);
  }
  finish_curve<Dot>(sums, P, 2, *out.finish, out.channel, kChannels, out.y, out.residual, out.y_step);
}

/// `done`: how many channels of the block another one has written.
template <int P>
inline __attribute__((always_inline)) void finish_block(__m256i (&acc)[P][2], const DepthwiseArgs& t,
                                                        int64_t pixel, int64_t channel, int64_t done) {
  const int64_t at = pixel * t.channels + channel;
  TileArgs out{};
  out.finish = t.finish;
  out.channel = channel;
  out.y = static_cast<uint8_t*>(t.y) + at;
  out.residual = t.residual == nullptr ? nullptr : static_cast<const uint8_t*>(t.residual) + at;
  out.y_step = t.channels;
  if (done == 0) return finish_sums<P>(acc, out);
  // The residual may be where the results go: what is written there already is no residual any more.
  uint8_t results[P * kChannels], residuals[P * kChannels];
  TileArgs apart = out;
  apart.y = results;
  apart.y_step = kChannels;
  if (out.residual != nullptr) {
    for (int p = 0; p < P; ++p)
      __builtin_memcpy(residuals + p * kChannels, static_cast<const uint8_t*>(out.residual) + p * t.channels,
                       kChannels);
    apart.residual = residuals;
  }
  finish_sums<P>(acc, apart);
  for (int p = 0; p < P; ++p)
    __builtin_memcpy(static_cast<uint8_t*>(out.y) + p * t.channels + done, results + p * kChannels + done,
                     static_cast<size_t>(kChannels - done));
}

/// KW = 0: of any width.
template <int KW, int S, int P>
void pixels(const DepthwiseArgs& t, int64_t pixel, const Block& block) {
  const uint8_t* w = block.weights;
  const int64_t channel = block.channel;
  __m256i acc[P][2];
  const int32_t* bias = static_cast<const int32_t*>(t.finish->bias) + channel;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) acc[p][0] = V::loadi(bias), acc[p][1] = V::loadi(bias + 8);
  const uint8_t* at = t.a + pixel * t.a_step + channel;
  const int64_t rows = t.tap_count / t.kernel_w;
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2, w += t.kernel_w * kColumn) {
    if constexpr (KW > 0) add_rows<KW, S, P, true>(acc, t, at, row, w);
    if constexpr (KW == 0) add_rows_of_any<P, true>(acc, t, at, row, w);
  }
  if (row < rows) {
    if constexpr (KW > 0) add_rows<KW, S, P, false>(acc, t, at, row, w);
    if constexpr (KW == 0) add_rows_of_any<P, false>(acc, t, at, row, w);
  }
  finish_block<P>(acc, t, pixel, channel, block.done);
}

/// Pixels of one block of channels, in runs of nearly equal length.
template <int KW, int S>
void run_block(const DepthwiseArgs& t, int64_t begin, int64_t end, const Block& block) {
  for (int64_t pixel = begin; pixel < end;) {
    const int64_t left = end - pixel, runs = (left + kMostPixels - 1) / kMostPixels;
    const int64_t count = (left + runs - 1) / runs;
    if (count == 4) pixels<KW, S, 4>(t, pixel, block);
    if (count == 3) pixels<KW, S, 3>(t, pixel, block);
    if (count == 2) pixels<KW, S, 2>(t, pixel, block);
    if (count == 1) pixels<KW, S, 1>(t, pixel, block);
    pixel += count;
  }
}

template <int KW, int S>
void depthwise_row(const DepthwiseArgs& t) {
  constexpr int64_t kPixels = 56;  // whose inputs stay in the first-level cache
  const int64_t block_bytes = (t.tap_count / t.kernel_w + 1) / 2 * t.kernel_w * kColumn;
  for (int64_t begin = 0; begin < t.pixels; begin += kPixels) {
    const int64_t end = t.pixels - begin < kPixels ? t.pixels : begin + kPixels;
    const auto* w = static_cast<const uint8_t*>(t.weights);
    for (int64_t c = 0; c < t.channels; c += kChannels, w += block_bytes) {
      const int64_t done = c + kChannels <= t.channels ? 0 : c + kChannels - t.channels;
      run_block<KW, S>(t, begin, end, {w, c - done, done});
    }
  }
}

void depthwise_bytes(const DepthwiseArgs& t) {
  const int64_t stride = t.column_bytes == 0 ? 0 : t.a_step / t.column_bytes;
  if (t.kernel_w == 3 && stride == 1) return depthwise_row<3, 1>(t);
  if (t.kernel_w == 3 && stride == 2) return depthwise_row<3, 2>(t);
  if (t.kernel_w == 5 && stride == 1) return depthwise_row<5, 1>(t);
  if (t.kernel_w == 5 && stride == 2) return depthwise_row<5, 2>(t);
  depthwise_row<0, 0>(t);
}

}  // namespace

const DepthwiseBytes kDepthwiseBytesAvx2 = {"pairs", depthwise_bytes, DepthwisePacking::row_pairs, kChannels};

}  // namespace ulp::kernels
