// Tensors that are spread out: columns of windows back to images (fold), and the grids of several axes
// (meshgrid).
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "ulp/exchange/tflite/along.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

/// Which elements [tap, window] of columns are added to each place of an image along one dimension. A place
/// has as many as the one that has most: the missing ones are the element behind the last, which is 0.
Taps folded_taps(const Window& window) {
  std::vector<Picks> places(static_cast<size_t>(window.in));
  for (int64_t k = 0; k < window.kernel; ++k) {
    for (int64_t o = 0; o < window.out; ++o) {
      const int64_t at = o * window.stride - window.pad + k * window.dilation;
      if (at >= 0 && at < window.in) places[static_cast<size_t>(at)].push_back(k * window.out + o);
    }
  }
  size_t most = 1;
  for (const Picks& one : places) most = std::max(most, one.size());
  Taps taps(most, Picks(places.size(), window.kernel * window.out));
  for (size_t place = 0; place < places.size(); ++place) {
    for (size_t t = 0; t < places[place].size(); ++t) taps[t][place] = places[place][t];
  }
  return taps;
}

/// Sums of the taps along an axis of [R, H, W].
Index folded_along(Builder& builder, Index from, int64_t axis, const Taps& taps) {
  Shape shape = builder.shape_of_tensor(from);
  for (auto* sizes : {&shape.sizes, &shape.signature}) ++sizes->at(static_cast<size_t>(axis));
  const Index with_zero = builder.like(from, shape);
  std::vector<int64_t> pads(2 * shape.sizes.size(), 0);
  pads[static_cast<size_t>(2 * axis + 1)] = 1;
  builder.emit(Operation::PAD, {from, builder.pairs(pads)}, {with_zero}, options_of(schema::PadOptionsT()));
  Index sum = -1;
  for (const Picks& tap : taps) {
    const Index one = picked_along(builder, with_zero, axis, tap);
    if (sum < 0) {
      sum = one;
      continue;
    }
    const Index more = builder.like(one, builder.shape_of_tensor(one));
    builder.emit(Operation::ADD, {sum, one}, {more}, options_of(schema::AddOptionsT()));
    sum = more;
  }
  return sum;
}

/// [N, C taps, windows] to [N, C, H, W]: what windows read of an element is added there.
void col2im(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (rank_of(node, x) != 3) refuse(node, "expected columns with a batch");
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size", 2),
                             dilation = ints_arg(node, "dilation", 2), pad = ints_arg(node, "padding", 2),
                             stride = ints_arg(node, "stride", 2);
  std::vector<Window> windows;
  for (size_t d = 0; d < 2; ++d) {
    Window one{.in = fixed_size(node, *node.output(), static_cast<int64_t>(2 + d)),
               .kernel = kernel[d],
               .stride = stride[d],
               .dilation = dilation[d],
               .pad = pad[d]};
    one.out = (one.in + 2 * one.pad - one.dilation * (one.kernel - 1) - 1) / one.stride + 1;
    windows.push_back(one);
  }
  const Index in = builder.numbers(node, &x);
  const Shape from = builder.shape_of_tensor(in);
  const int64_t channels = fixed_size(node, *node.output(), 1);
  const bool free = from.signature[0] < 0;
  const auto rows = static_cast<int32_t>(from.sizes[0] * channels);
  const auto shaped = [&](const std::vector<int64_t>& sizes) {
    Shape shape = fixed_shape(sizes);
    shape.sizes.insert(shape.sizes.begin(), rows);
    shape.signature.insert(shape.signature.begin(), free ? -1 : rows);
    return shape;
  };
  const auto [h, w] = std::pair(windows[0], windows[1]);
  const Index split = builder.like(in, shaped({h.kernel, w.kernel, h.out, w.out})),
              turned = builder.like(in, shaped({h.kernel, h.out, w.kernel, w.out})),
              flat = builder.like(in, shaped({h.kernel * h.out, w.kernel * w.out}));
  builder.reshape(node, in, split);
  builder.emit(Operation::TRANSPOSE, {split, builder.ints({0, 1, 3, 2, 4})}, {turned},
               options_of(schema::TransposeOptionsT()));
  builder.reshape(node, turned, flat);
  const Index lines = folded_along(builder, flat, 2, folded_taps(w)),
              image = folded_along(builder, lines, 1, folded_taps(h));
  builder.reshape(node, image, builder.make_numbers(node, node.output(), Layout::as_is));
}

/// Each axis repeated along all others.
void meshgrid(Builder& builder, const Node& node) {
  const graph::Argument& list = node.arg("tensors");
  if (list.kind != graph::Argument::Kind::list || list.items.size() != node.outputs().size())
    refuse(node, "expected a list of tensors");
  const bool swaps = has_arg(node, "indexing") && text_arg(node, "indexing") == "xy" && list.items.size() > 1;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const Value& output = *node.output(i);
    if (builder.graph().users(&output).empty()) continue;
    if (!list.items[i].is_value()) refuse(node, "expected a list of tensors");
    const Shape whole = builder.shape_of(node, output);
    if (builder.free_batch() && whole.signature != whole.sizes)
      refuse(node, "expected a batch that is a number for this shape");
    const size_t axis = swaps && i < 2 ? 1 - i : i;
    std::vector<int64_t> row(whole.sizes.size(), 1);
    row.at(axis) = whole.sizes.at(axis);
    const Index in = builder.numbers(node, list.items[i].value), wide = builder.like(in, fixed_shape(row));
    builder.reshape(node, in, wide);
    builder.emit(Operation::BROADCAST_TO, {wide, builder.ints({whole.sizes.begin(), whole.sizes.end()})},
                 {builder.make_numbers(node, &output, Layout::as_is)}, {}, 2);
  }
}

}  // namespace

ConverterTable folded_converters() {
  static constexpr Converter kTable[] = {{"aten::col2im", col2im}, {"aten::meshgrid", meshgrid}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
