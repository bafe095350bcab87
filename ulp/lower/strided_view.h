// A value as a view of a tensor of the plan: what permute, slice, expand and the like do before anything is
// copied. Views of views are views of the tensor again, so a chain of such ops costs one move or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// A run of equal steps through an item in memory; the batch itself has the size kBatch.
struct Piece {
  int64_t size = 1, stride = 0;
  bool is_batch() const { return size == runtime::kBatch; }
  bool operator==(const Piece&) const = default;
};

/// Dimensions in logical order. Each is the product of its pieces, the outermost first; none where its size
/// is 1.
struct StridedView {
  int32_t tensor = -1;  ///< of the plan
  int64_t offset = 0;   ///< into an item, in elements
  std::vector<std::vector<Piece>> dims;
  bool operator==(const StridedView&) const = default;
};

/// The tensor as it is. Dimension 0 is the batch, with its rows.
StridedView whole_view(int32_t tensor, const runtime::TensorInfo& info);

/// Elements of a dimension; nothing where the batch is part of it.
std::optional<int64_t> size_of(const StridedView& view, size_t dim);

/// The same view with the pieces of a dimension joined where they are one run of equal steps.
StridedView joined(StridedView view);

// The functions below give nothing where the result is no view of the same tensor: the elements have to be
// laid out first, or the batch is in the way.

/// The same elements in the same logical order with other sizes.
std::optional<StridedView> reshaped(const StridedView& view, const std::vector<graph::SizeExpr>& sizes);
/// Dimension order[d] becomes dimension d.
StridedView permuted(const StridedView& view, const std::vector<int64_t>& order);
/// `count` indices of a dimension from `begin` on, `step` apart.
std::optional<StridedView> narrowed(StridedView view, size_t dim, int64_t begin, int64_t count, int64_t step);
/// One index of a dimension, which falls away.
std::optional<StridedView> picked(const StridedView& view, size_t dim, int64_t index);
/// A dimension from its end to its begin.
std::optional<StridedView> flipped(StridedView view, size_t dim);
/// A dimension several times over: a b a b, or, with `each`, a a b b.
StridedView repeated(StridedView view, size_t dim, int64_t times, bool each = false);
/// Windows of a dimension, `step` apart; what is in a window becomes the last dimension.
std::optional<StridedView> windows(StridedView view, size_t dim, int64_t size, int64_t step);

/// True where dimension 0 begins with the batch and has more: rows for each item.
bool has_rows(const StridedView& view);
/// Such a view with the rows of an item as its dimension 1.
StridedView rows_apart(const StridedView& view);
/// What dimension 0 of a view that begins with the batch is: its rows times the batch.
graph::SizeExpr first_size_of(const StridedView& view);

/// Sizes of a view with the batch as dimension 0 and nowhere else; nothing for another.
std::optional<std::vector<int64_t>> shape_of(const StridedView& view);
/// The step's attributes that lay such a view out; it has a shape.
runtime::MoveAttributes move_of(const StridedView& view, runtime::Layout layout);
/// Whether that leaves the elements of the tensor where they are.
bool leaves_order(const runtime::MoveAttributes& attributes, const runtime::TensorInfo& tensor);

}  // namespace ulp::lowering
