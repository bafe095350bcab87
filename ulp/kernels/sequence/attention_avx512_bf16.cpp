// A head of attention on vdpbf16ps: queries, keys and values in bf16, and the numbers of the softmax rounded to it. Sums are
// in f32.
#define ULP_VECTOR_BYTES 64
#define ULP_TILE_VECTORS 4
#include "ulp/kernels/sequence/attention_parts.h"

namespace ulp::kernels {
namespace {

/// Two products a lane. Pairs of bf16 lie where FloatStep has floats.
struct PairStep {
  static Vector add(Vector sum, float a, Vector b) {
    const __m512i pair = _mm512_castps_si512(_mm512_set1_ps(a));
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pair),
                            reinterpret_cast<__m512bh>(reinterpret_cast<__m512i>(b)));
  }
};

/// to[d] = the pair (first[d], second[d]); a second row that is null counts as zeros.
void pair_rows(const uint16_t* first, const uint16_t* second, int64_t depth, int64_t padded, float* to) {
  for (int64_t d = 0; d < padded; d += kVector) {
    const int64_t left = depth - d;
    const auto mask = static_cast<__mmask16>(left >= kVector ? 0xffff : left > 0 ? (1U << left) - 1U : 0U);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first + d));
    const __m512i high = second == nullptr
                             ? _mm512_setzero_si512()
                             : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, second + d));
    _mm512_storeu_si512(to + d, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

/// Rounds n numbers, rounded up to whole vectors.
void to_bf16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; i += kVector) {
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), rounded);
  }
}

/// As floats of four bytes, of which each holds a pair.
const float* pairs(const uint16_t* numbers) {
  return reinterpret_cast<const float*>(numbers);
}

void head(const HeadBf16Args& h) {
  const int64_t keys = pad_row(h.keys), depth = pad_row(h.depth), half = h.depth / 2;
  float* transposed = h.scratch;
  float* values = transposed + half * keys;
  float* scores = values + keys / 2 * depth;
  float* mixed = scores + kQueryBlock * keys;
  auto* weights = reinterpret_cast<uint16_t*>(mixed + kQueryBlock * depth);
  for (int64_t first = 0; first < keys; first += kRowPad) {
    const int64_t count = h.keys - first < kRowPad ? h.keys - first : kRowPad;
    transpose_keys(pairs(h.k + first * h.kv_stride), h.kv_stride / 2, half, count, transposed + first, keys);
  }
  for (int64_t key = 0; key < h.keys; key += 2) {
    const uint16_t* from = h.v + key * h.kv_stride;
    pair_rows(from, key + 1 < h.keys ? from + h.kv_stride : nullptr, h.depth, depth,
              values + key / 2 * depth);
  }
  for (int64_t first = 0; first < h.queries; first += kQueryBlock) {
    const int64_t rows = h.queries - first < kQueryBlock ? h.queries - first : kQueryBlock;
    const int64_t last = h.earlier + first + rows;
    const int64_t seen = h.causal && last < h.keys ? last : h.keys;  // by the last of these queries
    multiply<PairStep>({pairs(h.q + first * h.stride), h.stride / 2, transposed, keys, scores, keys, half},
                       rows, pad_row(seen));
    float sums[kQueryBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const SeenKeys mine = seen_keys(h, first + r);
      float* row = scores + r * keys;
      sums[r] = soften(row, h.mask, h.scale, h.softcap, mine);
      for (int64_t i = mine.last; i < pad_row(seen); ++i) row[i] = 0;
      to_bf16(row, seen, weights + r * keys);
    }
    multiply<PairStep>({pairs(weights), keys / 2, values, depth, mixed, depth, (seen + 1) / 2}, rows, depth);
    divide_rows(mixed, depth, sums, rows, h.depth, h.y + first * h.y_stride, h.y_stride);
  }
}

}  // namespace

extern const HeadBf16Fn kHeadAvx512Bf16;
const HeadBf16Fn kHeadAvx512Bf16 = head;

}  // namespace ulp::kernels
