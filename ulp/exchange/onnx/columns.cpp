// Windows of an image as columns, and columns that are summed up to an image.
#include <torch/types.h>

#include <array>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// Windows along one dimension of an image.
struct ColumnWindows {
  int64_t in = 0, kernel = 1, stride = 1, dilation = 1, pad = 0;
  int64_t count() const { return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; }
  /// The element of the padded image that a window has at a tap.
  int64_t place(int64_t tap, int64_t window) const { return window * stride + tap * dilation; }
};

/// Along height and width.
std::array<ColumnWindows, 2> column_windows(const Node& node, const std::vector<int64_t>& image) {
  const auto pair = [&](const char* name) { return ints_arg(node, name, 2); };
  const std::vector<int64_t> kernel = pair("kernel_size"), stride = pair("stride"),
                             dilation = pair("dilation"), pad = pair("padding");
  const auto along = [&](size_t d) {
    return ColumnWindows{image[d], kernel[d], stride[d], dilation[d], pad[d]};
  };
  return {along(0), along(1)};
}

/// [N, C, H, W] to [N, C kernel, windows]: picks of rows [taps, windows], and of columns.
void im2col(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t rank = rank_of(node, x);
  const bool has_batch = rank == 4;
  std::string name = builder.name_of(&x);
  if (!has_batch) name = builder.call(node, "Unsqueeze", {name, builder.ints({0})});
  const auto windows = column_windows(node, {fixed_size(node, x, -2), fixed_size(node, x, -1)});
  const int64_t down = windows[0].pad, right = windows[1].pad;
  if (down > 0 || right > 0)
    name = builder.call(node, "Pad", {name, builder.ints({0, 0, down, right, 0, 0, down, right})});
  const auto picked = [&](const ColumnWindows& along, int64_t axis) {
    at::Tensor places = torch::empty({along.kernel, along.count()}, torch::kLong);
    auto* place = places.mutable_data_ptr<int64_t>();
    for (int64_t tap = 0; tap < along.kernel; ++tap) {
      for (int64_t window = 0; window < along.count(); ++window) *place++ = along.place(tap, window);
    }
    return builder.call(node, "Gather", {name, builder.constant(places)}, {{"axis", axis}});
  };
  name = picked(windows[0], 2);
  name = picked(windows[1], 4);
  reshape_to_output(builder, node, transposed(builder, node, name, {0, 1, 2, 4, 3, 5}));
}

/// The sums by the operator, which ONNX Runtime has of float32, and which casts around it halve.
void by_col2im(Builder& builder, const Node& node, const std::string& x, const std::vector<int64_t>& image) {
  const auto pair = [&](const char* name) { return ints_arg(node, name, 2); };
  std::vector<int64_t> pads = pair("padding");
  pads.insert(pads.end(), {pads[0], pads[1]});
  const std::string made =
      builder.call(node, "Col2Im", {x, builder.ints(image), builder.ints(pair("kernel_size"))},
                   {{"dilations", pair("dilation")}, {"pads", std::move(pads)}, {"strides", pair("stride")}});
  reshape_to_output(builder, node, made);
}

/// The sums as elements added at their places; what falls into the padding goes to one place behind the image.
void by_places(Builder& builder, const Node& node, const std::string& x, const std::vector<int64_t>& image,
               const SizeExpr& batch) {
  const auto windows = column_windows(node, image);
  const int64_t pixels = image[0] * image[1];
  std::vector<int64_t> places;
  const auto of_image = [&](const ColumnWindows& along, int64_t tap, int64_t window) {
    const int64_t place = along.place(tap, window) - along.pad;
    return place < along.in ? place : -1;
  };
  for (int64_t i = 0; i < windows[0].kernel * windows[1].kernel; ++i) {
    const int64_t tap_y = i / windows[1].kernel, tap_x = i % windows[1].kernel;
    for (int64_t row = 0; row < windows[0].count(); ++row) {
      for (int64_t column = 0; column < windows[1].count(); ++column) {
        const int64_t y = of_image(windows[0], tap_y, row), x_place = of_image(windows[1], tap_x, column);
        places.push_back(y < 0 || x_place < 0 ? pixels : y * image[1] + x_place);
      }
    }
  }
  const auto all = std::ssize(places);
  const int64_t channels =
      fixed_size(node, *value_arg(node, "self"), -2) / (windows[0].kernel * windows[1].kernel);
  const auto rows = [&](int64_t width) {
    return builder.sizes(node, {batch, SizeExpr{0, 1, channels}, SizeExpr{0, 1, width}});
  };
  // Sums of halves are there of float32 alone.
  const at::ScalarType type = type_of(*node.output());
  const at::ScalarType wide = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  std::string columns = builder.call(node, "Reshape", {x, builder.ints({-1, channels, all})});
  if (wide != type) columns = builder.cast(node, columns, wide);
  const std::string at = builder.call(
      node, "Expand", {builder.constant(torch::tensor(places, torch::kLong).view({1, 1, -1})), rows(all)});
  const std::string zeros =
      builder.call(node, "ConstantOfShape", {rows(pixels + 1)}, {{"value", torch::zeros({1}, wide)}});
  const std::string sums = builder.call(node, "ScatterElements", {zeros, at, columns},
                                        {{"axis", int64_t{2}}, {"reduction", std::string("add")}});
  std::string inside =
      builder.call(node, "Slice", {sums, builder.ints({0}), builder.ints({pixels}), builder.ints({2})});
  if (wide != type) inside = builder.cast(node, inside, type);
  reshape_to_output(builder, node, inside);
}

/// [N, C kernel, windows] to [N, C, H, W].
void col2im(Builder& builder, const Node& node) {
  constexpr int64_t kFirstOpset = 18;
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> image = ints_arg(node, "output_size", 2);
  const bool has_batch = rank_of(node, x) == 3;
  std::string name = builder.name_of(&x);
  if (!has_batch) name = builder.call(node, "Unsqueeze", {name, builder.ints({0})});
  if (builder.opset() >= kFirstOpset && type_of(x) != at::kDouble)
    return by_col2im(builder, node, name, image);
  by_places(builder, node, name, image, has_batch ? sizes_of(node, x)[0] : SizeExpr{0, 1, 1});
}

}  // namespace

ConverterTable column_converters() {
  static constexpr Converter kTable[] = {{"aten::im2col", im2col}, {"aten::col2im", col2im}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
