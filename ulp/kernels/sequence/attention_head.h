// One head of one item, compiled for each instruction set. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

constexpr int64_t kQueryBlock = 24;  // queries whose scores are held at a time
constexpr int64_t kRowPad = 16;      // rows of scratch are multiples of this

template <typename T>
struct HeadArgsOf {
  const T *q = nullptr, *k = nullptr, *v = nullptr;  ///< the head's first number of the first row
  int64_t stride = 0;                                ///< from row to row of q
  int64_t kv_stride = 0;                             ///< and of k and v
  float* y = nullptr;
  int64_t y_stride = 0;         ///< and of y
  const float* mask = nullptr;  ///< one for each key, or null
  int64_t queries = 0, keys = 0, depth = 0;
  float scale = 1;
  bool causal = false;
  int64_t earlier = 0;       ///< causal: query i sees the keys 0 to earlier + i
  int64_t window = 0;        ///< causal: the last so many of them; 0: all
  float softcap = 0;         ///< of the scores; 0: none
  float* scratch = nullptr;  ///< head_scratch() floats
};
using HeadArgs = HeadArgsOf<float>;
/// Depth and strides are even; head_bf16_scratch() floats.
using HeadBf16Args = HeadArgsOf<uint16_t>;
/// 32768 * 255^2 < 2^31: sums of products of codes less zero points, and how far those of two keys are apart.
constexpr int64_t kLargestCodesDepth = 32768;
/// Codes of a depth up to that; `scale` turns products of codes into scores. head_codes_scratch() floats.
struct HeadCodesArgs : HeadArgsOf<uint8_t> {
  int32_t query_zero = 0, key_zero = 0, value_zero = 0;
  float value_scale = 1;
};

/// The keys that a query sees: first to last - 1.
struct SeenKeys {
  int64_t first, last;
};
template <typename T>
constexpr SeenKeys seen_keys(const HeadArgsOf<T>& h, int64_t query) {
  const int64_t own = h.earlier + query + 1;
  const int64_t last = h.causal && own < h.keys ? own : h.keys;
  const bool cut = h.causal && h.window > 0 && own > h.window;
  return {cut ? (own - h.window < last ? own - h.window : last) : 0, last};
}

constexpr int64_t pad_row(int64_t n) {
  return (n + kRowPad - 1) / kRowPad * kRowPad;
}
/// Keys transposed, values, scores and sums of a block of queries.
constexpr int64_t head_scratch(int64_t keys, int64_t depth) {
  return depth * pad_row(keys) + keys * pad_row(depth) + kQueryBlock * (pad_row(keys) + pad_row(depth));
}

/// The same in pairs of bf16, and the softmax of a block of queries once more.
constexpr int64_t head_bf16_scratch(int64_t keys, int64_t depth) {
  const int64_t wide = pad_row(keys);
  return depth / 2 * wide + wide / 2 * pad_row(depth) + kQueryBlock * (wide + wide / 2 + pad_row(depth));
}

/// Pairs of codes where the bf16 head has pairs of bf16; the queries of a block, 16 keys before they are transposed, and the
/// integers of a block of queries.
constexpr int64_t head_codes_scratch(int64_t keys, int64_t depth) {
  const int64_t wide = pad_row(keys), half = (depth + 1) / 2;
  return half * wide + wide / 2 * pad_row(depth) + (kQueryBlock + kRowPad) * half +
         kQueryBlock * (wide + wide / 2 + 2 * pad_row(depth));
}

using HeadFn = void (*)(const HeadArgs&);
using HeadBf16Fn = void (*)(const HeadBf16Args&);
using HeadCodesFn = void (*)(const HeadCodesArgs&);
extern const HeadBf16Fn kHeadAvx512Bf16;
extern const HeadFn kHeadPortable, kHeadAvx2, kHeadAvx512, kHeadNeon;
extern const HeadCodesFn kHeadCodesPortable, kHeadCodesAvx2, kHeadCodesAvx512Vnni;

}  // namespace ulp::kernels
