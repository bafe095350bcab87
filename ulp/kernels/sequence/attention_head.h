// One head of one item, compiled for each instruction set. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

namespace ulp::kernels {

constexpr int64_t kQueryBlock = 24;  // queries whose scores are held at a time
constexpr int64_t kRowPad = 16;      // rows of scratch are multiples of this

struct HeadArgs {
  const float *q, *k, *v;  ///< the head's first number of the first row
  float* y;
  int64_t stride;     ///< from row to row of q, k and v
  int64_t y_stride;   ///< and of y
  const float* mask;  ///< one for each key, or null
  int64_t queries, keys, depth;
  float scale;
  bool causal;
  int64_t earlier;  ///< causal: query i sees the keys 0 to earlier + i
  float* scratch;   ///< head_scratch() floats
};

constexpr int64_t pad_row(int64_t n) {
  return (n + kRowPad - 1) / kRowPad * kRowPad;
}
/// Keys transposed, values, scores and sums of a block of queries.
constexpr int64_t head_scratch(int64_t keys, int64_t depth) {
  return depth * pad_row(keys) + keys * pad_row(depth) + kQueryBlock * (pad_row(keys) + pad_row(depth));
}

using HeadFn = void (*)(const HeadArgs&);
extern const HeadFn kHeadPortable, kHeadAvx2, kHeadAvx512;

}  // namespace ulp::kernels
