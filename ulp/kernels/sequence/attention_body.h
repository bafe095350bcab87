// One head of attention as two products of small matrices with a softmax between them. Included once by a file per
// instruction set, which names its function with ULP_HEAD; everything here has internal linkage.
#include "ulp/kernels/sequence/attention_parts.h"

namespace ulp::kernels {
namespace {

void head(const HeadArgs& h) {
  const int64_t keys = pad_row(h.keys), depth = pad_row(h.depth);
  float* transposed = h.scratch;
  float* values = transposed + h.depth * keys;
  float* scores = values + h.keys * depth;
  float* mixed = scores + kQueryBlock * keys;
  for (int64_t first = 0; first < keys; first += kRowPad) {
    const int64_t count = h.keys - first < kRowPad ? h.keys - first : kRowPad;
    transpose_keys(h.k + first * h.kv_stride, h.kv_stride, h.depth, count, transposed + first, keys);
  }
  for (int64_t key = 0; key < h.keys; ++key) {
    const float* from = h.v + key * h.kv_stride;
    float* to = values + key * depth;
    // The next head's part of these rows, while this one works.
    prefetch_lines(from + h.depth, h.depth * 4);
    prefetch_lines(h.k + key * h.kv_stride + h.depth, h.depth * 4);
    for (int64_t d = 0; d < h.depth; ++d) to[d] = from[d];
    for (int64_t d = h.depth; d < depth; ++d) to[d] = 0;
  }
  for (int64_t first = 0; first < h.queries; first += kQueryBlock) {
    const int64_t rows = h.queries - first < kQueryBlock ? h.queries - first : kQueryBlock;
    const int64_t last = h.earlier + first + rows;
    const int64_t seen = h.causal && last < h.keys ? last : h.keys;  // by the last of these queries
    for (int64_t r = 0; r < rows; ++r) {
      prefetch_lines(h.q + (first + r) * h.stride + h.depth, h.depth * 4);
      prefetch_lines<true>(h.y + (first + r) * h.y_stride, h.depth * 4);
    }
    multiply<FloatStep>({h.q + first * h.stride, h.stride, transposed, keys, scores, keys, h.depth}, rows,
                        pad_row(seen));
    float sums[kQueryBlock];
    for (int64_t r = 0; r < rows; ++r) {
      const SeenKeys mine = seen_keys(h, first + r);
      float* row = scores + r * keys;
      sums[r] = soften(row, h.mask, h.scale, h.softcap, mine);
      for (int64_t i = mine.last; i < seen; ++i) row[i] = 0;
    }
    multiply<FloatStep>({scores, keys, values, depth, mixed, depth, seen}, rows, depth);
    divide_rows(mixed, depth, sums, rows, h.depth, h.y + first * h.y_stride, h.y_stride);
  }
}

}  // namespace

extern const HeadFn ULP_HEAD;
const HeadFn ULP_HEAD = head;

}  // namespace ulp::kernels
