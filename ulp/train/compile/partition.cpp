#include "ulp/train/compile/partition.h"

#include <algorithm>
#include <atomic>

namespace ulp::train::compiled {

namespace {

/// A piece of less costs more to hand over than another thread gains: waking one takes some microseconds.
constexpr double kLeastPiece = 6000;
/// Instructions of less work than so many pieces stay on the calling thread.
constexpr double kLeastPieces = 4;
/// Pieces for each thread: one that is taken off its core holds up its piece alone.
constexpr int64_t kPiecesOfThread = 4;

std::atomic<double> least_piece = kLeastPiece;

/// Numbers of a block whose sum is one of the sums that are added in order.
constexpr int64_t kBlockNumbers = 8192;
constexpr int64_t kTileRows = 12;      ///< of a product: tiles have 6 or 12
constexpr int64_t kProductRows = 96;   ///< for each piece panels of the right side are copied
constexpr int64_t kPanelColumns = 32;  ///< two of the widest vectors

/// Nanoseconds for a number on vectors of 8: rough ones, for what is worth a thread.
constexpr double kMoved = 0.15, kCurve = 0.8, kExponential = 1.2, kNorm = 0.8, kNormGradient = 2.0,
                 kDrawn = 0.8, kPacked = 0.4;

double curve_cost(kernels::Differentiable function) {
  using enum kernels::Differentiable;
  switch (function) {
    case affine:
    case divide:
    case relu:
    case leaky_relu:
    case square:
    case abs:
    case sqrt:
    case clamp:
    case hardtanh:
    case hardsigmoid:
    case hardswish:
      return kMoved;
    default:
      return kCurve;
  }
}

Cut by_numbers(const MatrixView& of, double cost) {
  return {.units = of.count(),
          .grain = formats::kRandomGroup,
          .nanoseconds = static_cast<double>(of.count()) * cost};
}

Cut by_rows(const MatrixView& of, double cost) {
  return {.units = of.rows, .nanoseconds = static_cast<double>(of.rows * of.width) * cost};
}

/// Rows of a matrix that is written as columns.
Cut by_lines(const MatrixView& of, double cost) {
  return {.units = of.rows,
          .grain = 16,  // a line of the result's numbers
          .nanoseconds = static_cast<double>(of.count()) * cost};
}

Cut by_columns(const MatrixView& of, double cost) {
  return {.units = of.width,
          .grain = kPanelColumns / 2,  // a line of memory
          .fewest = kPanelColumns,
          .nanoseconds = static_cast<double>(of.rows * of.width) * cost};
}

Cut by_blocks(const MatrixView& of, double cost) {
  return {.units = block_count(of), .nanoseconds = static_cast<double>(of.rows * of.width) * cost};
}

Cut product_cut(const StepRun& step, const MatrixView& out, int64_t inner) {
  const bool columns = cut_by_columns(out);
  return {.units = columns ? out.width : out.rows,
          .grain = columns ? kPanelColumns : kTileRows,
          .fewest = columns ? kPanelColumns : kProductRows,
          .nanoseconds = static_cast<double>(out.rows * out.width * inner) * step.multiply_add_nanoseconds};
}

/// Rows of the result, in one piece where two of them may add to one number.
Cut move_cut(const StepRun& step, const Instruction& one) {
  const MatrixView& of = step.views[static_cast<size_t>(one.op == Op::move ? one.out : one.a)];
  Cut cut = by_rows(of, 2 * kMoved);
  if (one.op == Op::move_back && step.plan->moves[static_cast<size_t>(one.detail)].repeats())
    cut.grain = cut.units;
  return cut;
}

/// Rows of the result, each with all columns: the left side is packed once for them.
Cut packed_cut(const StepRun& step, const Instruction& one) {
  const MatrixView& out = step.views[static_cast<size_t>(one.out)];
  const MatrixView& a = step.views[static_cast<size_t>(one.a)];
  const auto inner = static_cast<double>(one.transposed ? a.rows : a.width);
  return {.units = out.rows,
          .grain = kTileRows,
          .fewest = 2 * kTileRows,
          .nanoseconds = static_cast<double>(out.rows * out.width) * inner * step.multiply_add_nanoseconds /
                         static_cast<double>(step.packed->word_numbers)};
}

/// Heads of keys, whose queries see nothing of another one's.
Cut attention_cut(const StepRun& step, const Instruction& one) {
  const Attention& of = step.plan->attentions[static_cast<size_t>(one.detail)];
  const int64_t samples = of.batch.at(step.batch);
  const auto scores = static_cast<double>(samples * of.heads * of.queries * of.keys) / (of.causal ? 2 : 1);
  const auto products = static_cast<double>(of.size + of.value_size);
  const bool backward = one.op == Op::attention_gradient;
  return {.units = samples * of.key_heads,
          .nanoseconds =
              scores * (products * (backward ? 2.5 : 1) * step.multiply_add_nanoseconds + kExponential)};
}

/// Samples, which have nothing of each other: a share for each thread, as each reads all weights in every step.
Cut recurrent_cut(const StepRun& step, const Instruction& one) {
  const Recurrent& of = step.plan->recurrents[static_cast<size_t>(one.detail)];
  const int64_t batch = of.batch.at(step.batch), workers = step.pool == nullptr ? 1 : step.pool->workers();
  const auto gates = static_cast<double>(batch * of.steps * of.gate_count() * of.hidden);
  return {
      .units = batch,
      .grain = (batch + workers - 1) / workers,
      .nanoseconds = gates * (static_cast<double>(of.hidden) * step.multiply_add_nanoseconds + kExponential)};
}

}  // namespace

bool cut_by_columns(const MatrixView& out) {
  return out.width >= 2 * kPanelColumns && out.rows < 4 * out.width;
}

int64_t block_rows(int64_t width) {
  return std::max<int64_t>(1, kBlockNumbers / width);
}

int64_t block_count(const MatrixView& of) {
  const int64_t rows = block_rows(of.width);
  return (of.rows + rows - 1) / rows;
}

Cut cut_of(const StepRun& step, const Instruction& one) {
  const auto view = [&](int matrix) -> const MatrixView& { return step.views[static_cast<size_t>(matrix)]; };
  switch (one.op) {
    case Op::transpose:
      return by_lines(view(one.a), 2 * kMoved);
    case Op::forward_product:
    case Op::input_product:
    case Op::weight_product:
      return product_cut(step, view(one.out), view(one.b).rows);
    case Op::pack: {
      const auto numbers = static_cast<double>(view(one.a).rows * view(one.a).width);
      return {.units = pack_panels(step, one), .nanoseconds = numbers * kPacked};
    }
    case Op::packed_product:
      return packed_cut(step, one);
    case Op::value:
    case Op::gradient:
      return by_numbers(view(one.out), curve_cost(one.function));
    case Op::add_scaled:
    case Op::multiply:
    case Op::quotient:
    case Op::select:
    case Op::select_gradient:
    case Op::choose:
    case Op::fill:
    case Op::spread:
      return by_numbers(view(one.out), kMoved);
    case Op::dropout:
      return by_numbers(view(one.out), kDrawn);
    case Op::copy:
      return {.units = view(one.a).rows,
              .nanoseconds = static_cast<double>(view(one.a).rows * one.columns) * kMoved};
    case Op::row_sums:
      return by_rows(view(one.a), kMoved);
    case Op::mask:
    case Op::reshape:
    case Op::repeat_rows:
    case Op::repeat_columns:
    case Op::unpick:
      return by_rows(view(one.out), kMoved);
    case Op::pick:
      return by_rows(view(one.out), 4 * kMoved);
    case Op::column_sums:
      return by_columns(view(one.a), kMoved);
    case Op::total:
      return by_blocks(view(one.a), kMoved);
    case Op::point_loss:
      return by_blocks(view(one.a), one.loss == kernels::PointLoss::bce_logits ? kExponential : 2 * kMoved);
    case Op::cross_entropy:
      return by_blocks(view(one.a), kExponential);
    case Op::log_softmax:
    case Op::log_softmax_gradient:
    case Op::softmax:
    case Op::softmax_gradient:
      return by_rows(view(one.a), kExponential);
    case Op::layer_norm:
      return by_rows(view(one.a), kNorm);
    case Op::layer_norm_gradient:
      return by_rows(view(one.a), kNormGradient);
    case Op::move:
    case Op::move_back:
      return move_cut(step, one);
    case Op::from_integers:
    case Op::embedding:
      return by_rows(view(one.out), kMoved);
    case Op::embedding_gradient:
      return by_columns(view(one.out), kMoved);
    case Op::attention:
    case Op::attention_gradient:
      return attention_cut(step, one);
    case Op::recurrent:
    case Op::recurrent_gradient:
      return recurrent_cut(step, one);
    case Op::take_loss:
      return {};
    default:
      return image_cut(step, one);
  }
}

int64_t piece_count(const StepRun& step, const Cut& cut) {
  if (step.pool == nullptr) return 1;
  const double least = least_piece.load(std::memory_order_relaxed);
  if (cut.nanoseconds < kLeastPieces * least) return 1;
  const int64_t grains = (cut.units + cut.grain - 1) / cut.grain;
  int64_t pieces = std::min(grains, kPiecesOfThread * step.pool->workers());
  if (least > 0)
    pieces = std::min({pieces, static_cast<int64_t>(cut.nanoseconds / least), cut.units / cut.fewest});
  return std::max<int64_t>(1, pieces);
}

void for_pieces(const StepRun& step, const Cut& cut, FunctionRef<void(int64_t, int64_t, int)> piece) {
  const int64_t pieces = piece_count(step, cut);
  if (pieces == 1) return piece(0, cut.units, 0);
  const int64_t grains = (cut.units + cut.grain - 1) / cut.grain;
  step.pool->run(pieces, [&](int64_t i, int worker) {
    const int64_t begin = grains * i / pieces * cut.grain;
    piece(begin, std::min(cut.units, grains * (i + 1) / pieces * cut.grain), worker);
  });
}

void make_scratch(const StepPlan& plan, StepRun& step, int64_t batch) {
  int64_t blocks = 0, moments = 0;
  for (const Instruction& one : plan.instructions) {
    if (one.a < 0) continue;
    const PlanMatrix& matrix = plan.matrices[static_cast<size_t>(one.a)];
    const MatrixView a{nullptr, matrix.rows.at(batch), matrix.width, matrix.stride};
    if (one.op == Op::total || one.op == Op::point_loss || one.op == Op::cross_entropy)
      blocks = std::max(blocks, block_count(a));
    if (one.op == Op::layer_norm_gradient) moments = std::max(moments, 2 * a.rows);
  }
  for (const Attention& attention : plan.attentions)
    step.scratch_floats = std::max(step.scratch_floats, static_cast<size_t>(attention.scratch()));
  for (const Recurrent& recurrent : plan.recurrents)
    step.scratch_floats = std::max(step.scratch_floats, static_cast<size_t>(recurrent.scratch()));
  const auto packs = [](const Instruction& one) { return one.op == Op::packed_product; };
  if (std::ranges::any_of(plan.instructions, packs))
    step.scratch_floats = std::max(step.scratch_floats, static_cast<size_t>(packed_scratch()));
  step.scratch.resize(step.scratch_floats *
                      static_cast<size_t>(step.pool == nullptr ? 1 : step.pool->workers()));
  step.block_sums.resize(static_cast<size_t>(blocks));
  if (step.pool != nullptr) step.moments.resize(static_cast<size_t>(moments));
}

void set_least_piece(double nanoseconds) {
  least_piece.store(nanoseconds < 0 ? kLeastPiece : nanoseconds);
}

}  // namespace ulp::train::compiled
