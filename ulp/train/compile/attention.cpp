// Scaled dot-product attention without a matrix of all scores: block by block of queries, and in the backward pass again.
#include <algorithm>

#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::LayerProduct;
using kernels::ScoreRows;

/// Queries at a time: a block of scores stays in the second-level cache.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kLanes = 16;

int64_t padded_length(int64_t length) {
  return (length + kLanes - 1) / kLanes * kLanes;
}

/// One head: so many rows, `step` apart.
struct Head {
  float* data = nullptr;
  int64_t step = 0;
  float* row(int64_t r) const { return data + r * step; }
};

Head head_of(const StepRun& step, const HeadsMatrix& of, int64_t sample, int64_t head, int64_t heads,
             int64_t length, int64_t size) {
  const MatrixView& view = step.views[static_cast<size_t>(of.matrix)];
  const int64_t first = of.merged ? sample * length : (sample * heads + head) * length;
  return {view.data + first * view.stride + (of.merged ? head * size : 0), view.stride};
}

/// The memory of a caller.
struct Scratch {
  float *keys, *values;  ///< transposed: [size, keys], rows of padded_length(keys)
  float *scores, *gradients;
  float *dense, *sums, *dots;
  Scratch(const Attention& of, float* memory) {
    const int64_t row = padded_length(of.keys);
    const auto take = [&memory](int64_t floats) {
      float* taken = memory;
      memory += padded_length(floats);
      return taken;
    };
    keys = take(of.size * row);
    values = take(of.value_size * row);
    scores = take(kQueryBlock * row);
    gradients = take(kQueryBlock * row);
    dense = take(of.keys * std::max(of.size, of.value_size));
    sums = take(kQueryBlock);
    dots = take(kQueryBlock);
  }
};

/// to [size, keys] = the transpose of a head.
void transpose_head(const StepRun& step, const Head& head, int64_t keys, int64_t size, float* dense,
                    float* to) {
  for (int64_t r = 0; r < keys; ++r) std::copy_n(head.row(r), size, dense + r * size);
  step.products->transpose(dense, keys, size, to, padded_length(keys));
}

/// One query head with its keys.
struct HeadWork {
  const Attention& of;
  const StepRun& step;
  int64_t sample, head;  ///< of queries
  Head query, key, value;
  const Scratch& scratch;

  Head result(const HeadsMatrix& matrix) const {
    return head_of(step, matrix, sample, head, of.heads, of.queries, of.value_size);
  }
  /// Of the query `begin` and those behind it.
  float* log_sums(int64_t begin) const {
    const MatrixView& view = step.views[static_cast<size_t>(of.log_sums)];
    return view.data + (sample * of.heads + head) * view.stride + begin;
  }
  /// The scores of queries from `begin` on, and those that they see of all keys.
  ScoreRows block(int64_t begin) const {
    const int64_t rows = std::min(kQueryBlock, of.queries - begin);
    ScoreRows x{.data = scratch.scores,
                .rows = rows,
                .keys = of.keys,
                .stride = padded_length(of.keys),
                .visible = of.keys};
    if (of.mask >= 0) {
      const MatrixView& mask = step.views[static_cast<size_t>(of.mask)];
      x.mask =
          mask.data + (sample * of.mask_sample + head * of.mask_head + begin * of.mask_query) * mask.stride;
      x.mask_stride = of.mask_query * mask.stride;
      x.truth = of.mask_truth;
    }
    if (of.causal) {
      x.keys = std::min(of.keys, begin + rows);
      x.visible = begin + 1;
      x.step = 1;
    }
    return x;
  }
  void product(const LayerProduct& one) const { step.products->product(one); }
  /// Scores of a block: its queries by all keys that one of them sees.
  void compute_scores(const ScoreRows& x, int64_t begin) const {
    product({.rows = x.rows,
             .inner = of.size,
             .columns = x.keys,
             .a = query.row(begin),
             .a_row = query.step,
             .b = scratch.keys,
             .b_inner = x.stride,
             .y = x.data,
             .y_row = x.stride});
  }
  /// Drops numbers of the scores; the same ones for the same draw, block by block.
  void drop(const ScoreRows& x, int64_t begin, float* keep) const {
    if (of.dropout == 0) return;
    const int64_t groups = (of.keys + formats::kRandomGroup - 1) / formats::kRandomGroup;
    const formats::RandomKey key{step.random.seed, step.random.stream | static_cast<uint64_t>(of.draw)};
    const auto threshold =
        static_cast<uint32_t>(std::min(static_cast<double>(of.dropout) * 0x1p32, 0xffffffffp0));
    const int64_t row = (sample * of.heads + head) * of.queries + begin;
    step.attention->dropout(x, key, static_cast<uint64_t>(row * groups), groups, threshold,
                            1 / (1 - of.dropout), keep);
  }
};

void attend(const HeadWork& work) {
  const Attention& of = work.of;
  const Head y = work.result(of.result);
  for (int64_t begin = 0; begin < of.queries; begin += kQueryBlock) {
    const ScoreRows x = work.block(begin);
    work.compute_scores(x, begin);
    work.step.attention->exponentials(x, of.scale, work.scratch.sums, work.log_sums(begin));
    work.drop(x, begin, nullptr);
    work.product({.rows = x.rows,
                  .inner = x.keys,
                  .columns = of.value_size,
                  .a = x.data,
                  .a_row = x.stride,
                  .b = work.value.data,
                  .b_inner = work.value.step,
                  .y = y.row(begin),
                  .y_row = y.step});
    work.step.attention->divide_rows(y.row(begin), y.step, x.rows, of.value_size, work.scratch.sums);
  }
}

/// The gradients of the head's queries, and its part of those of keys and values, to which it adds unless it is the first.
struct HeadGradients {
  Head query, key, value, result;
  bool first;
};

void attend_back(const HeadWork& work, const HeadGradients& to) {
  const Attention& of = work.of;
  const kernels::AttentionRowOps& rows = *work.step.attention;
  const Head y = work.result(of.result);
  for (int64_t begin = 0; begin < of.queries; begin += kQueryBlock) {
    const bool adds = !to.first || begin > 0;
    const ScoreRows x = work.block(begin);
    work.compute_scores(x, begin);
    rows.probabilities(x, of.scale, work.log_sums(begin));
    rows.row_dots(to.result.row(begin), to.result.step, y.row(begin), y.step, x.rows, of.value_size,
                  work.scratch.dots);
    ScoreRows g = x;
    g.data = work.scratch.gradients;
    // The values' gradient takes the weights as they were multiplied, after dropout.
    const bool drops = of.dropout != 0;
    if (drops) work.drop(x, begin, g.data);
    work.product({.rows = x.keys,
                  .inner = x.rows,
                  .columns = of.value_size,
                  .a = drops ? g.data : x.data,
                  .a_row = 1,
                  .a_inner = x.stride,
                  .b = to.result.row(begin),
                  .b_inner = to.result.step,
                  .y = to.value.data,
                  .y_row = to.value.step,
                  .adds = adds});
    work.product({.rows = x.rows,
                  .inner = of.value_size,
                  .columns = x.keys,
                  .a = to.result.row(begin),
                  .a_row = to.result.step,
                  .b = work.scratch.values,
                  .b_inner = x.stride,
                  .y = g.data,
                  .y_row = g.stride});
    work.drop(g, begin, nullptr);
    rows.score_gradient(x, g.data, work.scratch.dots, of.scale);
    work.product({.rows = x.rows,
                  .inner = x.keys,
                  .columns = of.size,
                  .a = x.data,
                  .a_row = x.stride,
                  .b = work.key.data,
                  .b_inner = work.key.step,
                  .y = to.query.row(begin),
                  .y_row = to.query.step});
    work.product({.rows = x.keys,
                  .inner = x.rows,
                  .columns = of.size,
                  .a = x.data,
                  .a_row = 1,
                  .a_inner = x.stride,
                  .b = work.query.row(begin),
                  .b_inner = work.query.step,
                  .y = to.key.data,
                  .y_row = to.key.step,
                  .adds = adds});
  }
}

/// Keys that no query sees have no gradient; blocks write those that one sees.
void clear_unseen(const Attention& of, const Head& gradient, int64_t size) {
  const int64_t first = std::min(kQueryBlock, of.queries);
  if (!of.causal || of.keys <= first) return;
  for (int64_t r = first; r < of.keys; ++r) std::fill_n(gradient.row(r), size, 0.0F);
}

template <bool kBackward>
void run_heads(const Attention& of, const StepRun& step, int64_t begin, int64_t end, float* memory) {
  const Scratch scratch(of, memory);
  const int64_t group = of.heads / of.key_heads;
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t sample = piece / of.key_heads, key_head = piece % of.key_heads;
    const auto of_keys = [&](const HeadsMatrix& matrix, int64_t size) {
      return head_of(step, matrix, sample, key_head, of.key_heads, of.keys, size);
    };
    const auto of_queries = [&](const HeadsMatrix& matrix, int64_t head) {
      return head_of(step, matrix, sample, head, of.heads, of.queries, of.size);
    };
    const Head key = of_keys(of.key, of.size), value = of_keys(of.value, of.value_size);
    transpose_head(step, key, of.keys, of.size, scratch.dense, scratch.keys);
    if (kBackward) transpose_head(step, value, of.keys, of.value_size, scratch.dense, scratch.values);
    for (int64_t member = 0; member < group; ++member) {
      const int64_t head = key_head * group + member;
      const HeadWork work{of, step, sample, head, of_queries(of.query, head), key, value, scratch};
      if constexpr (kBackward) {
        const HeadGradients to{of_queries(of.query_gradient, head), of_keys(of.key_gradient, of.size),
                               of_keys(of.value_gradient, of.value_size), work.result(of.result_gradient),
                               member == 0};
        if (to.first) {
          clear_unseen(of, to.key, of.size);
          clear_unseen(of, to.value, of.value_size);
        }
        attend_back(work, to);
      } else {
        attend(work);
      }
    }
  }
}

}  // namespace

int64_t Attention::scratch() const {
  const int64_t row = padded_length(keys);
  return (size + value_size + 2 * kQueryBlock) * row + padded_length(keys * std::max(size, value_size)) +
         2 * kQueryBlock;
}

void run_attention(const Attention& attention, const StepRun& step, int64_t begin, int64_t end,
                   float* scratch) {
  run_heads<false>(attention, step, begin, end, scratch);
}

void run_attention_gradient(const Attention& attention, const StepRun& step, int64_t begin, int64_t end,
                            float* scratch) {
  run_heads<true>(attention, step, begin, end, scratch);
}

}  // namespace ulp::train::compiled
