// Nodes that change the shape of a tensor and leave its elements as they are, or repeat them.
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

void reshape(Call& call) {
  const Tensor x = call.x(0);
  Sizes to = call.has(1) ? call.ints(1) : call.attribute("shape", Sizes());
  const bool zero_is_zero = call.attribute("allowzero", int64_t{0}) != 0;
  for (size_t d = 0; d < to.size() && !zero_is_zero; ++d) {
    if (to[d] != 0) continue;
    if (static_cast<int64_t>(d) >= x.dim()) call.refuse("expected a size 0 to stand for one of its input's");
    to[d] = x.size(static_cast<int64_t>(d));
  }
  call.set(at::reshape(x, to));
}

/// A matrix, of what is before the axis and what is behind it.
void flatten(Call& call) {
  const Tensor x = call.x(0);
  const int64_t axis = call.attribute("axis", int64_t{1}), rank = x.dim();
  if (axis < -rank || axis > rank) call.refuse("expected an axis of at most ", rank, ", got ", axis);
  const int64_t from = axis < 0 ? axis + rank : axis;
  if (from == 1 && rank >= 2) return call.set(rank == 2 ? x : at::flatten(x, 1));
  int64_t rows = 1;
  for (int64_t d = 0; d < from; ++d) rows *= x.size(d);
  call.set(at::reshape(x, {rows, -1}));
}

void transpose(Call& call) {
  const Tensor x = call.x(0);
  const auto rank = static_cast<size_t>(x.dim());
  Sizes order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  order = call.attribute("perm", order);
  if (order.size() != rank) call.refuse("expected ", rank, " dimensions as attribute 'perm'");
  Sizes swapped(rank);
  std::iota(swapped.begin(), swapped.end(), 0);
  Sizes places;
  for (size_t d = 0; d < rank; ++d) {
    if (order[d] != swapped[d]) places.push_back(static_cast<int64_t>(d));
  }
  if (places.empty()) return call.set(x);
  if (places.size() == 2) {
    std::swap(swapped[static_cast<size_t>(places[0])], swapped[static_cast<size_t>(places[1])]);
    if (order == swapped) return call.set(rank == 2 ? at::t(x) : at::transpose(x, places[0], places[1]));
  }
  call.set(at::permute(x, order));
}

void unsqueeze(Call& call) {
  Tensor x = call.x(0);
  Sizes axes = call.list("axes", 1).value_or(Sizes());
  const int64_t rank = x.dim() + std::ssize(axes);
  for (int64_t& axis : axes) axis = call.dim(axis, rank);
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) call.refuse("expected each axis once");
  for (const int64_t axis : axes) x = at::unsqueeze(x, axis);
  call.set(x);
}

/// Without axes, of all sizes that are 1: they have to be numbers.
void squeeze(Call& call) {
  Tensor x = call.x(0);
  Sizes axes = call.list("axes", 1).value_or(Sizes());
  const bool all = axes.empty();
  if (all)
    call.expect_the_same(x.sizes().vec(),
                         "expected axes, or an input whose sizes are numbers: one that is free may be 1, and "
                         "would be squeezed then");
  for (int64_t& axis : axes) axis = call.dim(axis, x.dim());
  for (int64_t d = 0; all && d < x.dim(); ++d) {
    if (x.size(d) == 1) axes.push_back(d);
  }
  std::ranges::sort(axes, std::greater());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  for (const int64_t axis : axes) {
    if (x.size(axis) != 1) call.refuse("expected size 1 in dimension ", axis, ", got ", x.size(axis));
    x = at::squeeze(x, axis);
  }
  call.set(x);
}

/// Broadcasts in both directions.
void expand(Call& call) {
  const Tensor x = call.x(0);
  Sizes to = call.ints(1);
  const auto rank = static_cast<int64_t>(to.size());
  if (rank < x.dim()) to.insert(to.begin(), static_cast<size_t>(x.dim() - rank), 1);
  for (int64_t d = 1; d <= x.dim(); ++d) {
    int64_t& size = to[to.size() - static_cast<size_t>(d)];
    if (size == 1) size = x.size(-d);
  }
  call.set(x.sizes() == at::IntArrayRef(to) ? x : x.expand(to));
}

void tile(Call& call) {
  const Tensor x = call.x(0);
  const Sizes times = call.ints(1);
  if (static_cast<int64_t>(times.size()) != x.dim())
    call.refuse("expected a number of repeats for each dimension");
  call.set(x.repeat(times));
}

}  // namespace

ConverterTable shape_table() {
  static constexpr Converter kTable[] = {{"Reshape", reshape, first_input},
                                         {"Flatten", flatten},
                                         {"Transpose", transpose},
                                         {"Unsqueeze", unsqueeze, first_input},
                                         {"Squeeze", squeeze, first_input},
                                         {"Expand", expand, expanded},
                                         {"Tile", tile, tiled}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
