// Each instruction is one call of a kernel, or one for each of its pieces.
#include <algorithm>

#include "ulp/train/compile/partition.h"
#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::LayerProduct;

/// The operands of an instruction, of which the units [begin, end) are computed (partition.h).
struct Operands {
  StepRun& step;
  const Instruction& one;
  int64_t begin, end;
  int worker = 0;
  /// Memory of the thread that runs the piece.
  float* scratch() const { return step.scratch.data() + static_cast<size_t>(worker) * step.scratch_floats; }
  const MatrixView& view(int matrix) const { return step.views[static_cast<size_t>(matrix)]; }
  const MatrixView& out() const { return view(one.out); }
  const MatrixView& a() const { return view(one.a); }
  const MatrixView& b() const { return view(one.b); }
  /// All of an operand; null without it.
  float* data(int matrix) const { return matrix < 0 ? nullptr : view(matrix).data; }
  /// For instructions that are cut by rows: these rows, and where they begin.
  kernels::StepRows rows(const MatrixView& of) const { return rows_of(of, begin, end); }
  float* row(int matrix) const {
    return matrix < 0 ? nullptr : view(matrix).data + begin * view(matrix).stride;
  }
  /// For instructions that are cut by numbers: where they begin, and how many there are.
  float* numbers(int matrix) const { return matrix < 0 ? nullptr : view(matrix).data + begin; }
  int64_t count() const { return end - begin; }
  const int64_t* classes() const {
    return one.classes == kTargets ? step.targets : step.integers[static_cast<size_t>(one.classes)];
  }
  static kernels::StepRows rows_of(const MatrixView& of, int64_t from, int64_t to) {
    return {of.data + from * of.stride, to - from, of.width, of.stride};
  }
  /// Of a block of rows: its first row, and the one behind.
  static int64_t block_row(const MatrixView& of, int64_t block) {
    return std::min(block * block_rows(of.width), of.rows);
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
  if (cut_by_columns(out)) {
    product.columns = of.count();
    product.b += of.begin;
    product.y += of.begin;
    if (product.bias != nullptr) product.bias += of.begin;
  } else {
    product.rows = of.count();
    product.a += of.begin * product.a_row;
    product.y += of.begin * product.y_row;
  }
  of.step.products->product(product);
}

void copy_columns(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &out = of.out();
  for (int64_t r = of.begin; r < of.end; ++r) {
    const float* from = a.data + r * a.stride + one.from;
    float* to = out.data + r * out.stride + one.to;
    if (one.adds) {
      for (int64_t j = 0; j < one.columns; ++j) to[j] += from[j];
    } else {
      std::copy_n(from, one.columns, to);
    }
  }
}

/// Rows of out, in pieces that both have as neighbours.
void copy_in_order(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  int64_t from = of.begin * out.width / a.width, j = of.begin * out.width % a.width;  // of a
  for (int64_t r = of.begin; r < of.end; ++r) {
    for (int64_t column = 0; column < out.width;) {
      const int64_t n = std::min(a.width - j, out.width - column);
      std::copy_n(a.data + from * a.stride + j, n, out.data + r * out.stride + column);
      column += n;
      j += n;
      if (j == a.width) {
        j = 0;
        ++from;
      }
    }
  }
}

void spread(const Operands& of) {
  const MatrixView& out = of.out();
  const float value = of.a().data[0];
  of.step.rows->fill(of.one.mean ? value / static_cast<float>(out.rows * out.width) : value,
                     of.numbers(of.one.out), of.count());
}

void reduce_rows(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView &a = of.a(), &out = of.out();
  if (one.op == Op::repeat_rows) {
    for (int64_t r = of.begin; r < of.end; ++r) std::copy_n(a.data, out.width, out.data + r * out.stride);
    return;
  }
  const auto count = static_cast<float>(std::max(a.width, out.width));
  if (one.op == Op::row_sums) {
    of.step.rows->row_sums(of.rows(a), of.row(one.out), out.stride);
    for (int64_t r = of.begin; one.mean && r < of.end; ++r) out.data[r * out.stride] /= count;
    return;
  }
  for (int64_t r = of.begin; r < of.end; ++r) {
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
  of.step.rows->dropout(key, of.begin, threshold, one.p[1], of.numbers(one.a), of.numbers(one.out),
                        of.count());
}

void pick_columns(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  const int64_t* classes = of.classes();
  if (of.one.op == Op::pick) {
    for (int64_t r = of.begin; r < of.end; ++r) out.data[r * out.stride] = a.data[r * a.stride + classes[r]];
    return;
  }
  of.step.rows->fill(0.0F, of.row(of.one.out), of.count() * out.stride);
  for (int64_t r = of.begin; r < of.end; ++r) out.data[r * out.stride + classes[r]] = a.data[r * a.stride];
}

void keep_masked(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  const uint8_t* bits = of.step.masks[static_cast<size_t>(of.one.from)];
  for (int64_t r = of.begin; r < of.end; ++r) {
    const float* from = a.data + r * a.stride;
    float* to = out.data + r * out.stride;
    for (int64_t j = 0, i = r * a.width; j < a.width; ++j, ++i)
      to[j] = (bits[i / 8] >> i % 8 & 1) != 0 ? from[j] : 0.0F;
  }
}

/// What the numbers of a loss are divided by, or of a sum that is a mean.
double averaged(const Instruction& one, const MatrixView& a) {
  if (!one.mean) return 1;
  return static_cast<double>(one.op == Op::cross_entropy ? a.rows : a.rows * a.width);
}

/// Blocks of rows, each with a sum of its own.
void sum_blocks(const Operands& of) {
  const Instruction& one = of.one;
  const kernels::StepRowOps& ops = *of.step.rows;
  const MatrixView& a = of.a();
  const float scale = one.mean ? 1.0F / static_cast<float>(averaged(one, a)) : 1.0F;
  for (int64_t block = of.begin; block < of.end; ++block) {
    const int64_t from = Operands::block_row(a, block), to = Operands::block_row(a, block + 1);
    const kernels::StepRows rows = Operands::rows_of(a, from, to);
    double& sum = of.step.block_sums[static_cast<size_t>(block)];
    if (one.op == Op::total) {
      sum = ops.total(rows);
      continue;
    }
    const MatrixView& out = of.out();
    float* dx = out.data + from * out.stride;
    if (one.op == Op::point_loss) {
      sum = ops.point_loss(one.loss, one.p[0], scale, rows, Operands::rows_of(of.b(), from, to), dx,
                           out.stride);
    } else {
      const float* weights = of.step.weights == nullptr ? nullptr : of.step.weights + from;
      sum = ops.cross_entropy(rows, of.classes() + from, weights, scale, dx, out.stride);
    }
  }
}

void embed(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  const int64_t* rows = of.classes();
  if (of.one.op == Op::embedding) {
    for (int64_t r = of.begin; r < of.end; ++r)
      std::copy_n(a.data + rows[r] * a.stride, out.width, out.data + r * out.stride);
    return;
  }
  // Columns of all rows: two rows may add to the same one.
  for (int64_t r = 0; !of.one.adds && r < out.rows; ++r)
    std::fill(out.data + r * out.stride + of.begin, out.data + r * out.stride + of.end, 0.0F);
  for (int64_t r = 0; r < a.rows; ++r) {
    if (rows[r] == of.one.from) continue;  // padding
    float* to = out.data + rows[r] * out.stride + of.begin;
    of.step.rows->add_scaled(to, a.data + r * a.stride + of.begin, 1.0F, to, of.count());
  }
}

void choose(const Operands& of) {
  const Instruction& one = of.one;
  const float *c = of.numbers(one.c), *a = of.numbers(one.a), *b = of.numbers(one.b);
  float* to = of.numbers(one.out);
  for (int64_t i = 0; i < of.count(); ++i) {
    const float yes = a == nullptr ? one.p[0] : a[i], no = b == nullptr ? one.p[1] : b[i];
    to[i] = c[i] != 0.0F ? yes : no;
  }
}

void recur(const Operands& of) {
  const Recurrent& layer = of.step.plan->recurrents[static_cast<size_t>(of.one.detail)];
  const auto run = of.one.op == Op::recurrent ? run_recurrent : run_recurrent_gradient;
  run(layer, of.step, of.begin, of.end, of.scratch());
}

/// Whether an integer compares with `from` as the instruction says.
bool compares(Compare how, int64_t value, int64_t with) {
  switch (how) {
    case Compare::equal:
      return value == with;
    case Compare::not_equal:
      return value != with;
    case Compare::less:
      return value < with;
    case Compare::less_equal:
      return value <= with;
    case Compare::greater:
      return value > with;
    case Compare::greater_equal:
      return value >= with;
    case Compare::none:
      break;
  }
  return false;
}

void widen_integers(const Operands& of) {
  const Instruction& one = of.one;
  const MatrixView& out = of.out();
  for (int64_t r = of.begin; r < of.end; ++r) {
    const int64_t* from = of.classes() + r * out.width;
    float* to = out.data + r * out.stride;
    for (int64_t j = 0; j < out.width; ++j) {
      to[j] = one.compare == Compare::none ? static_cast<float>(from[j])
                                           : static_cast<float>(compares(one.compare, from[j], one.from));
    }
  }
}

void attend(const Operands& of) {
  const Attention& attention = of.step.plan->attentions[static_cast<size_t>(of.one.detail)];
  const auto run = of.one.op == Op::attention ? run_attention : run_attention_gradient;
  run(attention, of.step, of.begin, of.end, of.scratch());
}

/// The sums of all blocks, added in order.
void finish_sums(StepRun& step, const Instruction& one) {
  const MatrixView& a = step.views[static_cast<size_t>(one.a)];
  double sum = 0;
  for (int64_t block = 0; block < block_count(a); ++block) sum += step.block_sums[static_cast<size_t>(block)];
  if (one.op != Op::total) {
    step.loss = sum / averaged(one, a);
    return;
  }
  const auto rounded = static_cast<float>(sum);
  step.views[static_cast<size_t>(one.out)].data[0] =
      one.mean ? rounded / static_cast<float>(a.rows * a.width) : rounded;
}

/// One pass over the rows on one thread; on several another one over the columns of the sums.
void normalise_gradient(StepRun& step, const Instruction& one) {
  const kernels::StepRowOps& ops = *step.rows;
  const Cut cut = cut_of(step, one);
  const auto view = [&](int matrix) { return step.views[static_cast<size_t>(matrix)]; };
  const auto data = [&](int matrix) { return matrix < 0 ? nullptr : view(matrix).data; };
  if (piece_count(step, cut) == 1)
    return ops.layer_norm_gradient(view(one.a).as_rows(), view(one.b).as_rows(), data(one.c),
                                   {one.p[0], one.centered}, data(one.out), one.adds, data(one.d),
                                   one.second_adds, data(one.e), nullptr);
  for_pieces(step, cut, [&](int64_t begin, int64_t end, int) {
    const Operands of{step, one, begin, end};
    ops.layer_norm_gradient(of.rows(of.a()), of.rows(of.b()), of.data(one.c), {one.p[0], one.centered},
                            of.row(one.out), false, nullptr, false, nullptr, step.moments.data() + 2 * begin);
  });
  if (one.d < 0 && one.e < 0) return;
  const Cut columns{
      .units = view(one.a).width, .grain = 16, .fewest = 32, .nanoseconds = cut.nanoseconds / 4};
  for_pieces(step, columns, [&](int64_t begin, int64_t end, int) {
    const auto part = [&](int matrix) {
      const MatrixView& of = view(matrix);
      return kernels::StepRows{of.data + begin, of.rows, end - begin, of.stride};
    };
    const auto sums = [&](int matrix) { return matrix < 0 ? nullptr : data(matrix) + begin; };
    ops.layer_norm_sums(part(one.a), part(one.b), step.moments.data(), one.adds, sums(one.d), one.second_adds,
                        sums(one.e));
  });
}

/// A part of the rows of a becomes columns of out.
void transpose(const Operands& of) {
  const MatrixView &a = of.a(), &out = of.out();
  of.step.products->transpose(a.data + of.begin * a.width, of.count(), a.width, out.data + of.begin,
                              out.stride);
}

void sum_columns(const Operands& of) {
  const MatrixView& a = of.a();
  of.step.rows->column_sums({a.data + of.begin, a.rows, of.count(), a.stride}, of.one.adds,
                            of.numbers(of.one.out));
}

/// Functions of single numbers.
void compute_numbers(const Operands& of) {
  const Instruction& one = of.one;
  const kernels::StepRowOps& ops = *of.step.rows;
  const auto numbers = [&](int matrix) { return of.numbers(matrix); };
  switch (one.op) {
    case Op::value:
      return ops.value(one.function, one.p, numbers(one.a), numbers(one.out), of.count());
    case Op::gradient:
      return ops.gradient(one.function, one.p, numbers(one.a), numbers(one.b), numbers(one.c),
                          numbers(one.out), of.count());
    case Op::add_scaled:
      return ops.add_scaled(numbers(one.a), numbers(one.b), one.p[0], numbers(one.out), of.count());
    case Op::multiply:
      return ops.multiply(numbers(one.a), numbers(one.b), numbers(one.out), of.count());
    case Op::quotient:
      return ops.quotient(numbers(one.a), numbers(one.b), numbers(one.out), of.count());
    case Op::select:
      return ops.select(numbers(one.a), numbers(one.b), one.p[0], numbers(one.out), of.count());
    case Op::select_gradient:
      return ops.select_gradient(numbers(one.a), numbers(one.b), numbers(one.c), one.p[0], numbers(one.out),
                                 of.count());
    default:  // fill
      return ops.fill(one.p[0], numbers(one.out), of.count());
  }
}

/// Softmax and norms of whole rows.
void normalise_rows(const Operands& of) {
  const Instruction& one = of.one;
  const kernels::StepRowOps& ops = *of.step.rows;
  switch (one.op) {
    case Op::log_softmax:
      return ops.log_softmax(of.rows(of.a()), of.row(one.out));
    case Op::log_softmax_gradient:
      return ops.log_softmax_gradient(of.rows(of.a()), of.row(one.b), of.row(one.out));
    case Op::softmax:
      return ops.softmax(of.rows(of.a()), of.row(one.out));
    case Op::softmax_gradient:
      return ops.softmax_gradient(of.rows(of.a()), of.row(one.b), of.row(one.out));
    default:  // layer_norm
      return ops.layer_norm(of.rows(of.a()), of.data(one.b), of.data(one.c), {one.p[0], one.centered},
                            of.row(one.out));
  }
}

/// The units [begin, end) of an instruction that is cut as cut_of says.
void run_piece(const Operands& of) {
  const Instruction& one = of.one;
  switch (one.op) {
    case Op::transpose:
      return transpose(of);
    case Op::forward_product:
    case Op::input_product:
    case Op::weight_product:
      return multiply_matrices(of);
    case Op::pack:
      return run_pack(of.step, one, of.begin, of.end);
    case Op::packed_product:
      return run_packed_product(of.step, one, of.begin, of.end, of.scratch());
    case Op::value:
    case Op::gradient:
    case Op::add_scaled:
    case Op::multiply:
    case Op::quotient:
    case Op::select:
    case Op::select_gradient:
    case Op::fill:
      return compute_numbers(of);
    case Op::dropout:
      return drop(of);
    case Op::row_sums:
    case Op::repeat_rows:
    case Op::repeat_columns:
      return reduce_rows(of);
    case Op::copy:
      return copy_columns(of);
    case Op::reshape:
      return copy_in_order(of);
    case Op::column_sums:
      return sum_columns(of);
    case Op::spread:
      return spread(of);
    case Op::total:
    case Op::point_loss:
    case Op::cross_entropy:
      return sum_blocks(of);
    case Op::pick:
    case Op::unpick:
      return pick_columns(of);
    case Op::choose:
      return choose(of);
    case Op::mask:
      return keep_masked(of);
    case Op::log_softmax:
    case Op::log_softmax_gradient:
    case Op::softmax:
    case Op::softmax_gradient:
    case Op::layer_norm:
      return normalise_rows(of);
    case Op::layer_norm_gradient:  // run_one
      return;
    case Op::move:
    case Op::move_back:
      return run_move(of.step, one, of.begin, of.end);
    case Op::embedding:
    case Op::embedding_gradient:
      return embed(of);
    case Op::from_integers:
      return widen_integers(of);
    case Op::attention:
    case Op::attention_gradient:
      return attend(of);
    case Op::recurrent:
    case Op::recurrent_gradient:
      return recur(of);
    case Op::take_loss:
      of.step.loss = static_cast<double>(of.a().data[0]);
      return;
    default:  // of images
      return run_image_units(of.step, one, of.begin, of.end);
  }
}

void run_one(StepRun& step, const Instruction& one) {
  if (one.op == Op::layer_norm_gradient) return normalise_gradient(step, one);
  for_pieces(step, cut_of(step, one), [&](int64_t begin, int64_t end, int worker) {
    run_piece({step, one, begin, end, worker});
  });
  if (one.op == Op::total || one.op == Op::point_loss || one.op == Op::cross_entropy) finish_sums(step, one);
}

}  // namespace

void run(const StepPlan& plan, StepRun& step, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) run_one(step, plan.instructions[i]);
}

}  // namespace ulp::train::compiled
