#include "ulp/lower/strided_view.h"

#include <algorithm>

namespace ulp::lowering {

using graph::SizeExpr;
using runtime::kBatch;
using runtime::Layout;

namespace {

/// Neighbours that are one run of equal steps become one piece.
std::vector<Piece> joined(const std::vector<Piece>& pieces) {
  std::vector<Piece> out;
  for (const Piece& next : pieces) {
    const bool fits = !out.empty() && !out.back().is_batch() && !next.is_batch() &&
                      out.back().stride == next.size * next.stride;
    if (fits) {
      out.back() = {out.back().size * next.size, next.stride};
    } else {
      out.push_back(next);
    }
  }
  return out;
}

bool has_batch(const std::vector<Piece>& pieces) {
  return std::ranges::any_of(pieces, &Piece::is_batch);
}

int64_t product(const std::vector<Piece>& pieces) {
  int64_t size = 1;
  for (const Piece& piece : pieces) size *= piece.size;
  return size;
}

/// The step to one index of a dimension.
int64_t address(const std::vector<Piece>& pieces, int64_t index) {
  int64_t at = 0;
  for (size_t i = pieces.size(); i-- > 0; index /= pieces[i].size) {
    at += index % pieces[i].size * pieces[i].stride;
  }
  return at;
}

/// Takes pieces off the end until they make this size; false where they do not.
bool take(std::vector<Piece>& pieces, const SizeExpr& size, std::vector<Piece>& own) {
  if (!size.constant() && (size.denominator != 1 || size.offset != 0)) return false;
  bool batch = !size.constant();
  int64_t left = batch ? size.numerator : size.offset;
  while (left > 1 || batch) {
    if (pieces.empty()) return false;
    Piece& last = pieces.back();
    if (last.is_batch()) {
      if (!batch) return false;
      batch = false;
    } else if (left > 1 && left % last.size == 0) {
      left /= last.size;
    } else if (left > 1 && last.size % left == 0) {
      own.insert(own.begin(), {left, last.stride});
      last = {last.size / left, last.stride * left};
      left = 1;
      continue;
    } else {
      return false;
    }
    own.insert(own.begin(), last);
    pieces.pop_back();
  }
  return true;
}

}  // namespace

StridedView whole_view(int32_t tensor, const runtime::TensorInfo& info) {
  StridedView view{.tensor = tensor, .offset = 0, .dims = {{{kBatch, 0}}}};
  view.dims.resize(info.shape.size());
  std::vector<size_t> order;
  for (size_t d = 1; d < info.shape.size(); ++d) order.push_back(d);
  if (info.layout == Layout::nhwc) std::rotate(order.begin(), order.begin() + 1, order.end());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t size = info.shape[order[i]];
    if (size > 1) view.dims[order[i]] = {{size, stride}};
    stride *= size;
  }
  if (info.times > 1) view.dims[0].push_back({info.times, stride});
  return view;
}

std::optional<int64_t> size_of(const StridedView& view, size_t dim) {
  if (has_batch(view.dims[dim])) return std::nullopt;
  return product(view.dims[dim]);
}

StridedView joined(StridedView view) {
  for (std::vector<Piece>& pieces : view.dims) pieces = joined(pieces);
  return view;
}

std::optional<StridedView> reshaped(const StridedView& view, const std::vector<SizeExpr>& sizes) {
  std::vector<Piece> pieces;
  for (const std::vector<Piece>& dim : view.dims) pieces.insert(pieces.end(), dim.begin(), dim.end());
  pieces = joined(pieces);
  StridedView made{.tensor = view.tensor, .offset = view.offset, .dims = {}};
  made.dims.resize(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    if (!take(pieces, sizes[d], made.dims[d])) return std::nullopt;
  }
  if (!pieces.empty()) return std::nullopt;
  return made;
}

StridedView permuted(const StridedView& view, const std::vector<int64_t>& order) {
  StridedView made{.tensor = view.tensor, .offset = view.offset, .dims = {}};
  for (const int64_t d : order) made.dims.push_back(view.dims[static_cast<size_t>(d)]);
  return made;
}

std::optional<StridedView> narrowed(StridedView view, size_t dim, int64_t begin, int64_t count,
                                    int64_t step) {
  std::vector<Piece>& own = view.dims[dim];
  if (has_batch(own)) return std::nullopt;
  if (step == 1 && count == product(own)) return view;
  own = joined(own);
  if (count == 1) {
    view.offset += address(own, begin);
    own.clear();
    return view;
  }
  while (own.size() > 1) {
    const int64_t inner = product(own) / own[0].size;
    if (step == 1 && begin % inner == 0 && count % inner == 0) {
      view.offset += begin / inner * own[0].stride;
      own[0].size = count / inner;
      if (own[0].size == 1) own.erase(own.begin());
      return view;
    }
    if (begin / inner != (begin + (count - 1) * step) / inner) return std::nullopt;
    view.offset += begin / inner * own[0].stride;
    begin %= inner;
    own.erase(own.begin());
  }
  view.offset += begin * own[0].stride;
  own[0] = {count, own[0].stride * step};
  return view;
}

std::optional<StridedView> picked(const StridedView& view, size_t dim, int64_t index) {
  std::optional<StridedView> made = narrowed(view, dim, index, 1, 1);
  if (made) made->dims.erase(made->dims.begin() + static_cast<int64_t>(dim));
  return made;
}

std::optional<StridedView> flipped(StridedView view, size_t dim) {
  if (has_batch(view.dims[dim])) return std::nullopt;
  for (Piece& piece : view.dims[dim]) {
    view.offset += (piece.size - 1) * piece.stride;
    piece.stride = -piece.stride;
  }
  return view;
}

StridedView repeated(StridedView view, size_t dim, int64_t times, bool each) {
  std::vector<Piece>& own = view.dims[dim];
  if (times > 1) own.insert(each ? own.end() : own.begin(), {times, 0});
  return view;
}

std::optional<StridedView> windows(StridedView view, size_t dim, int64_t size, int64_t step) {
  std::vector<Piece>& own = view.dims[dim];
  own = joined(own);
  if (has_batch(own) || own.size() > 1) return std::nullopt;
  const Piece piece = own.empty() ? Piece{1, 0} : own[0];
  const int64_t count = (piece.size - size) / step + 1;
  own.clear();
  if (count > 1) own.push_back({count, piece.stride * step});
  view.dims.emplace_back();
  if (size > 1) view.dims.back().push_back({size, piece.stride});
  return view;
}

bool has_rows(const StridedView& view) {
  return !view.dims.empty() && view.dims[0].size() > 1 && view.dims[0][0].is_batch();
}

StridedView rows_apart(const StridedView& view) {
  StridedView made = view;
  made.dims.insert(made.dims.begin(), {view.dims[0][0]});
  made.dims[1].erase(made.dims[1].begin());
  return made;
}

SizeExpr first_size_of(const StridedView& view) {
  const std::vector<Piece>& first = view.dims.at(0);
  return {product({first.begin() + 1, first.end()}), 1, 0};
}

std::optional<std::vector<int64_t>> shape_of(const StridedView& view) {
  if (view.dims.empty() || view.dims[0].size() != 1 || !view.dims[0][0].is_batch()) return std::nullopt;
  std::vector<int64_t> shape = {kBatch};
  for (size_t d = 1; d < view.dims.size(); ++d) {
    const std::optional<int64_t> size = size_of(view, d);
    if (!size) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

runtime::MoveAttributes move_of(const StridedView& view, Layout layout) {
  runtime::MoveAttributes attributes{.strides = {}, .offset = view.offset, .shape = {}};
  std::vector<Piece> pieces;
  const auto add = [&](size_t d) { pieces.insert(pieces.end(), view.dims[d].begin(), view.dims[d].end()); };
  for (size_t d = 1; d < view.dims.size(); ++d) attributes.shape.push_back({product(view.dims[d])});
  const size_t first = layout == Layout::nhwc ? 2 : 1;
  for (size_t d = first; d < view.dims.size(); ++d) add(d);
  if (layout == Layout::nhwc) add(1);
  for (const Piece& piece : joined(pieces)) attributes.strides.push_back({piece.size, piece.stride});
  return attributes;
}

bool leaves_order(const runtime::MoveAttributes& attributes, const runtime::TensorInfo& tensor) {
  int64_t item = 1;
  for (size_t d = 1; d < tensor.shape.size(); ++d) item *= tensor.shape[d];
  if (attributes.offset != 0) return false;
  if (attributes.strides.empty()) return item == 1;
  return attributes.strides.size() == 1 && attributes.strides[0] == runtime::MoveStride{item, 1};
}

}  // namespace ulp::lowering
