#include "ulp/exchange/tflite/runs.h"

#include <algorithm>

namespace ulp::exchange::tflite {

using quant::WindowRun;
using schema::Operation;

namespace {

Shape with_pixels(Shape shape, int64_t height, int64_t width) {
  for (auto* sizes : {&shape.sizes, &shape.signature}) {
    sizes->at(1) = static_cast<int32_t>(height);
    sizes->at(2) = static_cast<int32_t>(width);
  }
  return shape;
}

/// The part of an image that the windows of two runs read.
Index part_for_runs(Builder& builder, Index image, const WindowRun& rows, const WindowRun& columns) {
  const Shape whole = builder.shape_of_tensor(image);
  const int64_t height = rows.elements(), width = columns.elements();
  if (height == whole.sizes[1] && width == whole.sizes[2]) return image;
  const Index made = builder.like(image, with_pixels(whole, height, width));
  builder.emit(
      Operation::SLICE,
      {image, builder.ints({0, rows.start, columns.start, 0}), builder.ints({-1, height, width, -1})},
      {made});
  return made;
}

/// Joins parts along an axis; a part alone is written to `to` at once.
void join_parts(Builder& builder, const Indices& parts, Index to, int32_t axis) {
  if (parts.size() < 2) return;
  schema::ConcatenationOptionsT options;
  options.axis = axis;
  builder.emit(Operation::CONCATENATION, parts, {to}, options_of(options));
}

}  // namespace

Spans spans_of(const Window& window, bool counts_padding) {
  Spans spans;
  for (int64_t o = 0; o < window.out; ++o) {
    const int64_t start = o * window.stride - window.pad, end = start + window.kernel;
    if (counts_padding) {
      spans.push_back({start + window.pad, std::min(end, window.in + window.pad) + window.pad});
    } else {
      spans.push_back({std::max<int64_t>(start, 0), std::min(end, window.in)});
    }
  }
  return spans;
}

void average_runs(Builder& builder, const graph::Node& node, Index image, Index to, const Spans& rows,
                  const Spans& columns) {
  const std::vector<WindowRun> down = quant::window_runs(rows), across = quant::window_runs(columns);
  if (down.size() * across.size() > quant::kMostWindowRuns)
    refuse(node, "expected windows in at most ", quant::kMostWindowRuns, " parts of equal ones, got ",
           down.size() * across.size());
  const Shape whole = builder.shape_of_tensor(to);
  Indices lines;
  for (const WindowRun& row : down) {
    const bool one_line = down.size() == 1, one_column = across.size() == 1;
    const Index line = one_line ? to : builder.like(to, with_pixels(whole, row.count, whole.sizes[2]));
    Indices parts;
    for (const WindowRun& column : across) {
      const Index made = one_column ? line : builder.like(to, with_pixels(whole, row.count, column.count));
      schema::Pool2DOptionsT options;
      options.padding = schema::Padding::VALID;
      options.stride_h = static_cast<int32_t>(row.stride);
      options.stride_w = static_cast<int32_t>(column.stride);
      options.filter_height = static_cast<int32_t>(row.kernel);
      options.filter_width = static_cast<int32_t>(column.kernel);
      builder.emit(Operation::AVERAGE_POOL_2D, {part_for_runs(builder, image, row, column)}, {made},
                   options_of(std::move(options)));
      parts.push_back(made);
    }
    join_parts(builder, parts, line, 2);
    lines.push_back(line);
  }
  join_parts(builder, lines, to, 1);
}

}  // namespace ulp::exchange::tflite
