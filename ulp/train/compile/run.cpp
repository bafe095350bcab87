// Each instruction is one call of a kernel.
#include <algorithm>

#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::LayerProduct;

/// The operands of an instruction.
struct Operands {
  StepRun& step;
  const Instruction& one;
  const MatrixView& view(int matrix) const { return step.views[static_cast<size_t>(matrix)]; }
  const MatrixView& out() const { return view(one.out); }
  const MatrixView& a() const { return view(one.a); }
  const MatrixView& b() const { return view(one.b); }
  const MatrixView& c() const { return view(one.c); }
  /// Null without the operand.
  float* data(int matrix) const { return matrix < 0 ? nullptr : view(matrix).data; }
  const int64_t* classes() const {
    return one.classes == kTargets ? step.targets : step.integers[static_cast<size_t>(one.classes)];
  }
};

void multiply_matrices(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &b = of.b(), &out = of.out();
  LayerProduct product{.rows = out.rows,
                       .inner = b.rows,
                       .columns = out.width,
                       .a = a.data,
                       .a_row = a.stride,
                       .a_inner = 1,
                       .b = b.data,
                       .b_inner = b.stride,
                       .bias = of.data(one.c),
                       .y = out.data,
                       .y_row = out.stride,
                       .adds = one.adds,
                       .finish = one.finish,
                       .slope = one.p[0]};
  if (one.op == Op::weight_product) {
    product.a_row = 1;
    product.a_inner = a.stride;
  }
  of.step.products->product(product);
}

void copy_columns(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &out = of.out();
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* from = a.data + r * a.stride + one.from;
    float* to = out.data + r * out.stride + one.to;
    if (one.adds) {
      for (int64_t j = 0; j < one.columns; ++j) to[j] += from[j];
    } else {
      std::copy_n(from, one.columns, to);
    }
  }
}

/// Row by row in pieces that both have as neighbours.
void copy_in_order(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  int64_t row = 0, column = 0;  // of out
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t j = 0; j < a.width;) {
      const int64_t n = std::min(a.width - j, out.width - column);
      std::copy_n(a.data + r * a.stride + j, n, out.data + row * out.stride + column);
      j += n;
      column += n;
      if (column == out.width) {
        column = 0;
        ++row;
      }
    }
  }
}

void reduce(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &out = of.out();
  if (one.op == Op::total) {
    const auto sum = static_cast<float>(of.step.rows->total(a.as_rows()));
    out.data[0] = one.mean ? sum / static_cast<float>(a.rows * a.width) : sum;
    return;
  }
  const float value = one.mean ? a.data[0] / static_cast<float>(out.rows * out.width) : a.data[0];
  of.step.rows->fill(value, out.data, out.count());
}

void reduce_rows(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &out = of.out();
  if (one.op == Op::repeat_rows) {
    for (int64_t r = 0; r < out.rows; ++r) std::copy_n(a.data, out.width, out.data + r * out.stride);
    return;
  }
  const auto count = static_cast<float>(std::max(a.width, out.width));
  if (one.op == Op::row_sums) {
    of.step.rows->row_sums(a.as_rows(), out.data, out.stride);
    for (int64_t r = 0; one.mean && r < out.rows; ++r) out.data[r * out.stride] /= count;
    return;
  }
  for (int64_t r = 0; r < out.rows; ++r) {
    const float value = a.data[r * a.stride];
    std::fill_n(out.data + r * out.stride, out.width, one.mean ? value / count : value);
  }
}

void drop(const Operands& of) {
  const Instruction& one = of.one;
  const formats::RandomKey key{of.step.random.seed,
                               of.step.random.stream | static_cast<uint64_t>(one.columns)};
  const auto threshold =
      static_cast<uint32_t>(std::min(static_cast<double>(one.p[0]) * 0x1p32, 0xffffffffp0));
  of.step.rows->dropout(key, threshold, one.p[1], of.a().data, of.out().data, of.out().count());
}

void pick_columns(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  const int64_t* classes = of.classes();
  if (of.one.op == Op::pick) {
    for (int64_t r = 0; r < out.rows; ++r) out.data[r * out.stride] = a.data[r * a.stride + classes[r]];
    return;
  }
  of.step.rows->fill(0.0F, out.data, out.count());
  for (int64_t r = 0; r < out.rows; ++r) out.data[r * out.stride + classes[r]] = a.data[r * a.stride];
}

void measure_loss(const Operands& of) {
  const Instruction& one = of.one;
  if (one.op == Op::take_loss) {
    of.step.loss = static_cast<double>(of.a().data[0]);
    return;
  }
  const MatrixView &a = of.a(), &out = of.out();
  const int64_t numbers = one.op == Op::cross_entropy ? a.rows : a.rows * a.width;
  const double sum =
      one.op == Op::cross_entropy
          ? of.step.rows->cross_entropy(a.as_rows(), of.classes(), of.step.weights,
                                        one.mean ? 1.0F / static_cast<float>(numbers) : 1.0F, out.data,
                                        out.stride)
          : of.step.rows->point_loss(one.loss, one.p[0], one.mean ? 1.0F / static_cast<float>(numbers) : 1.0F,
                                     a.as_rows(), of.b().as_rows(), out.data, out.stride);
  of.step.loss = one.mean ? sum / static_cast<double>(numbers) : sum;
}

void normalise(const Operands& of) {
  const Instruction& one = of.one;
  const kernels::StepRowOps& rows = *of.step.rows;
  const MatrixView& a = of.a();
  if (one.op == Op::layer_norm)
    return rows.layer_norm(a.as_rows(), of.data(one.b), of.data(one.c), one.p[0], of.out().data);
  rows.layer_norm_gradient(a.as_rows(), of.b().as_rows(), of.data(one.c), one.p[0], of.data(one.out),
                           one.adds, of.data(one.d), one.second_adds, of.data(one.e));
}

void embed(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  const int64_t* rows = of.classes();
  if (of.one.op == Op::embedding) {
    for (int64_t r = 0; r < out.rows; ++r)
      std::copy_n(a.data + rows[r] * a.stride, out.width, out.data + r * out.stride);
    return;
  }
  if (!of.one.adds) of.step.rows->fill(0.0F, out.data, out.count());
  for (int64_t r = 0; r < a.rows; ++r) {
    if (rows[r] == of.one.from) continue;  // padding
    float* to = out.data + rows[r] * out.stride;
    of.step.rows->add_scaled(to, a.data + r * a.stride, 1.0F, to, out.width);
  }
}

void attend(const StepPlan& plan, const Operands& of) {
  const Attention& attention = plan.attentions[static_cast<size_t>(of.one.detail)];
  const int64_t heads = attention.batch.at(of.step.batch) * attention.key_heads;
  const auto run = of.one.op == Op::attention ? run_attention : run_attention_gradient;
  run(attention, of.step, 0, heads, of.step.scratch);
}

void run_one(const StepPlan& plan, StepRun& step, const Instruction& one) {
  const Operands of{step, one};
  const kernels::StepRowOps& rows = *step.rows;
  switch (one.op) {
    case Op::transpose:
      return step.products->transpose(of.a().data, of.a().rows, of.a().width, of.out().data, of.out().stride);
    case Op::forward_product:
    case Op::input_product:
    case Op::weight_product:
      return multiply_matrices(of);
    case Op::value:
      return rows.value(one.function, one.p, of.a().data, of.out().data, of.out().count());
    case Op::gradient:
      return rows.gradient(one.function, one.p, of.a().data, of.data(one.b), of.data(one.c), of.out().data,
                           of.out().count());
    case Op::add_scaled:
      return rows.add_scaled(of.a().data, of.b().data, one.p[0], of.out().data, of.out().count());
    case Op::multiply:
      return rows.multiply(of.a().data, of.b().data, of.out().data, of.out().count());
    case Op::dropout:
      return drop(of);
    case Op::quotient:
      return rows.quotient(of.a().data, of.b().data, of.out().data, of.out().count());
    case Op::row_sums:
    case Op::repeat_rows:
    case Op::repeat_columns:
      return reduce_rows(of);
    case Op::select:
      return rows.select(of.a().data, of.b().data, one.p[0], of.out().data, of.out().count());
    case Op::select_gradient:
      return rows.select_gradient(of.a().data, of.b().data, of.c().data, one.p[0], of.out().data,
                                  of.out().count());
    case Op::fill:
      return rows.fill(one.p[0], of.out().data, of.out().count());
    case Op::copy:
      return copy_columns(of);
    case Op::reshape:
      return copy_in_order(of);
    case Op::column_sums:
      return rows.column_sums(of.a().as_rows(), one.adds, of.out().data);
    case Op::total:
    case Op::spread:
      return reduce(of);
    case Op::pick:
    case Op::unpick:
      return pick_columns(of);
    case Op::log_softmax:
      return rows.log_softmax(of.a().as_rows(), of.out().data);
    case Op::log_softmax_gradient:
      return rows.log_softmax_gradient(of.a().as_rows(), of.b().data, of.out().data);
    case Op::softmax:
      return rows.softmax(of.a().as_rows(), of.out().data);
    case Op::softmax_gradient:
      return rows.softmax_gradient(of.a().as_rows(), of.b().data, of.out().data);
    case Op::layer_norm:
    case Op::layer_norm_gradient:
      return normalise(of);
    case Op::move:
    case Op::move_back:
      return run_move(plan, step, one, 0, move_rows(plan.moves[static_cast<size_t>(one.detail)], step.batch));
    case Op::embedding:
    case Op::embedding_gradient:
      return embed(of);
    case Op::attention:
    case Op::attention_gradient:
      return attend(plan, of);
    case Op::point_loss:
    case Op::cross_entropy:
    case Op::take_loss:
      return measure_loss(of);
  }
}

}  // namespace

void run(const StepPlan& plan, StepRun& step, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) run_one(plan, step, plan.instructions[i]);
}

}  // namespace ulp::train::compiled
