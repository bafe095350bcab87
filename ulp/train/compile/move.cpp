// Permutations, parts and repetitions of matrices.
#include <algorithm>

#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

/// The numbers of a move in this step: how far apart they are in the source.
struct Walk {
  size_t rows = 0;  ///< how many dimensions are rows
  int64_t sizes[kMostMoveDims] = {}, steps[kMostMoveDims] = {};
  int64_t width = 1, width_step = 0;
  int64_t start = 0;
};

Walk walk_of(const Move& move, const MatrixView& source, int64_t batch) {
  Walk walk;
  const auto step_of = [&](const Move::Dim& dim) { return dim.step.at(batch) * source.stride + dim.columns; };
  walk.rows = move.dims.size();
  if (!move.dims.empty() && move.dims.back().size.numerator == 0) {
    --walk.rows;
    walk.width = move.dims.back().size.offset;
    walk.width_step = step_of(move.dims.back());
  }
  for (size_t d = 0; d < walk.rows; ++d) {
    walk.sizes[d] = move.dims[d].size.at(batch);
    walk.steps[d] = step_of(move.dims[d]);
  }
  walk.start = move.start.at(batch) * source.stride + move.start_column;
  return walk;
}

/// Calls row(number of the row, where it begins in the source) for the rows [begin, end).
template <typename Row>
void for_each_row(const Walk& walk, int64_t begin, int64_t end, const Row& row) {
  int64_t at[kMostMoveDims] = {};
  int64_t rest = begin, offset = walk.start;
  for (size_t d = walk.rows; d-- > 0;) {
    at[d] = rest % walk.sizes[d];
    rest /= walk.sizes[d];
    offset += at[d] * walk.steps[d];
  }
  for (int64_t r = begin; r < end; ++r) {
    row(r, offset);
    for (size_t d = walk.rows; d-- > 0;) {
      offset += walk.steps[d];
      if (++at[d] < walk.sizes[d]) break;
      offset -= walk.sizes[d] * walk.steps[d];
      at[d] = 0;
    }
  }
}

}  // namespace

bool Move::repeats() const {
  return std::ranges::any_of(dims, [](const Dim& dim) {
    return dim.step == RowCount{0, 1, 0} && dim.columns == 0 && !(dim.size == RowCount{});
  });
}

void run_move(const StepRun& step, const Instruction& one, int64_t begin, int64_t end) {
  const Move& move = step.plan->moves[static_cast<size_t>(one.detail)];
  const MatrixView& a = step.views[static_cast<size_t>(one.a)];
  const MatrixView& out = step.views[static_cast<size_t>(one.out)];
  if (one.op == Op::move) {
    const Walk walk = walk_of(move, a, step.batch);
    for_each_row(walk, begin, end, [&](int64_t r, int64_t offset) {
      const float* from = a.data + offset;
      float* to = out.data + r * out.stride;
      if (walk.width_step == 1) {
        std::copy_n(from, walk.width, to);
      } else {
        for (int64_t j = 0; j < walk.width; ++j) to[j] = from[j * walk.width_step];
      }
    });
    return;
  }
  const Walk walk = walk_of(move, out, step.batch);
  for_each_row(walk, begin, end, [&](int64_t r, int64_t offset) {
    const float* from = a.data + r * a.stride;
    float* to = out.data + offset;
    if (one.adds) {
      for (int64_t j = 0; j < walk.width; ++j) to[j * walk.width_step] += from[j];
    } else {
      for (int64_t j = 0; j < walk.width; ++j) to[j * walk.width_step] = from[j];
    }
  });
}

}  // namespace ulp::train::compiled
