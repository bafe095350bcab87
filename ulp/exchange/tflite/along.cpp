#include "ulp/exchange/tflite/along.h"

#include <torch/types.h>

#include "ulp/exchange/adaptive_windows.h"

namespace ulp::exchange::tflite {

using schema::Operation;

namespace {

Shape with_size(Builder& builder, Index from, int64_t axis, int64_t size) {
  Shape shape = builder.shape_of_tensor(from);
  for (auto* sizes : {&shape.sizes, &shape.signature})
    sizes->at(static_cast<size_t>(axis)) = static_cast<int32_t>(size);
  return shape;
}

/// Sizes of the dimensions in [begin, end) as one; -1 where one may change.
int32_t joined(const std::vector<int32_t>& sizes, size_t begin, size_t end) {
  int32_t all = 1;
  for (size_t d = begin; d < end; ++d) all = sizes[d] < 0 || all < 0 ? -1 : all * sizes[d];
  return all;
}

}  // namespace

void pick_along(Builder& builder, Index from, Index to, int64_t axis, const Picks& picks) {
  schema::GatherOptionsT options;
  options.axis = static_cast<int32_t>(axis);
  builder.emit(Operation::GATHER, {from, builder.ints(picks)}, {to}, options_of(std::move(options)));
}

Index picked_along(Builder& builder, Index from, int64_t axis, const Picks& picks) {
  const Index made = builder.like(from, with_size(builder, from, axis, std::ssize(picks)));
  pick_along(builder, from, made, axis, picks);
  return made;
}

Index product_along(Builder& builder, const graph::Node& node, Index from, int64_t axis,
                    const at::Tensor& matrix) {
  const Shape in = builder.shape_of_tensor(from), out = with_size(builder, from, axis, matrix.size(0));
  const auto rows = [&](const Shape& shape) {
    const auto at = static_cast<size_t>(axis);
    const auto as_rows = [&](const std::vector<int32_t>& sizes) {
      return std::vector<int32_t>{joined(sizes, 0, at), sizes[at], joined(sizes, at + 1, sizes.size())};
    };
    return Shape{as_rows(shape.sizes), as_rows(shape.signature)};
  };
  const Index wide = builder.like(from, rows(in)), made = builder.like(from, rows(out)),
              whole = builder.like(from, out);
  builder.reshape(node, from, wide);
  builder.emit(Operation::BATCH_MATMUL, {builder.constant(matrix.to(at::kFloat).unsqueeze(0)), wide}, {made},
               options_of(schema::BatchMatMulOptionsT()));
  builder.reshape(node, made, whole);
  return whole;
}

Index largest_along(Builder& builder, Index from, int64_t axis, const Taps& taps) {
  Index most = -1;
  for (const Picks& tap : taps) {
    const Index one = picked_along(builder, from, axis, tap);
    if (most < 0) {
      most = one;
      continue;
    }
    const Index larger = builder.like(one, builder.shape_of_tensor(one));
    builder.emit(Operation::MAXIMUM, {most, one}, {larger});
    most = larger;
  }
  return most;
}

Taps taps_of(const graph::Node& node, const Window& window) {
  const std::vector<Picks> windows =
      window_elements({window.in, window.out, window.kernel, window.stride, window.dilation, window.pad});
  if (windows.empty()) refuse(node, "expected an element of the image in each window");
  Taps taps(static_cast<size_t>(window.kernel));
  for (const Picks& elements : windows) {
    for (size_t k = 0; k < taps.size(); ++k) taps[k].push_back(elements[k]);
  }
  return taps;
}

}  // namespace ulp::exchange::tflite
