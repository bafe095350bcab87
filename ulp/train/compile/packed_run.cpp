// Products whose sides are packed: the right one by an instruction of its own, the left one block by block.
#include <algorithm>

#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::PackedProduct;
using kernels::PackedProductOps;
using kernels::ProductSide;

/// Of the left side at a time: what stays in the second-level cache beside a panel of the right one.
constexpr int64_t kBlockRows = 96, kBlockInner = 1024;

const MatrixView& view_of(const StepRun& step, int matrix) {
  return step.views[static_cast<size_t>(matrix)];
}

int64_t words_of(const PackedProductOps& ops, int64_t inner) {
  return (inner + ops.word_numbers - 1) / ops.word_numbers;
}

/// The rows of a, or its columns, from `row` and the inner index `inner` on.
ProductSide left_side(const MatrixView& a, bool transposed, int64_t row, int64_t inner) {
  if (transposed) return {a.data + inner * a.stride + row, 1, a.stride};
  return {a.data + row * a.stride + inner, a.stride, 1};
}

}  // namespace

int64_t packed_scratch() {
  return kBlockRows * kBlockInner;
}

int64_t pack_panels(const StepRun& step, const Instruction& one) {
  const MatrixView& a = view_of(step, one.a);
  const int64_t columns = one.transposed ? a.rows : a.width;
  return (columns + step.packed->panel - 1) / step.packed->panel;
}

void run_pack(const StepRun& step, const Instruction& one, int64_t begin, int64_t end) {
  const MatrixView& a = view_of(step, one.a);
  const PackedProductOps& ops = *step.packed;
  const int64_t inner = one.transposed ? a.width : a.rows, columns = one.transposed ? a.rows : a.width;
  const ProductSide side =
      one.transposed ? ProductSide{a.data, a.stride, 1} : ProductSide{a.data, 1, a.stride};
  ops.pack_right(side, inner, columns, begin, end, view_of(step, one.out).data,
                 words_of(ops, inner) * ops.panel);
}

void run_packed_product(const StepRun& step, const Instruction& one, int64_t begin, int64_t end,
                        float* scratch) {
  const MatrixView &a = view_of(step, one.a), &out = view_of(step, one.out);
  const PackedProductOps& ops = *step.packed;
  const int64_t inner = one.transposed ? a.rows : a.width, panel_step = words_of(ops, inner) * ops.panel;
  const float* bias = one.c < 0 ? nullptr : view_of(step, one.c).data;
  for (int64_t row = begin; row < end; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, end - row);
    for (int64_t k = 0; k < inner; k += kBlockInner) {
      const int64_t numbers = std::min(kBlockInner, inner - k);
      const bool last = k + numbers == inner;
      const ProductSide left = left_side(a, one.transposed, row, k);
      PackedProduct product{.rows = rows,
                            .words = words_of(ops, numbers),
                            .columns = out.width,
                            .a = left.data,
                            .a_row = left.step,
                            .a_inner = left.inner_step,
                            .b = view_of(step, one.b).data + k / ops.word_numbers * ops.panel,
                            .panel_step = panel_step,
                            .bias = k == 0 ? bias : nullptr,
                            .y = out.data + row * out.stride,
                            .y_row = out.stride,
                            .adds = one.adds || k > 0,
                            .finish = last ? one.finish : kernels::ProductFinish::none,
                            .slope = one.p[0]};
      if (ops.pack_left != nullptr) {
        product.a = scratch;
        product.a_row = one.transposed ? 1 : product.words;
        product.a_inner = one.transposed ? kBlockRows : 1;
        ops.pack_left(left, rows, numbers, scratch, product.a_row, product.a_inner);
      }
      ops.product(product);
    }
  }
}

}  // namespace ulp::train::compiled
