// Which function writes a call of the graph as TensorFlow Lite operators. Each file of such functions ends in its own table,
// which converters.cpp gathers.
#pragma once

#include <span>
#include <string>

#include "ulp/exchange/calls.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/tflite/builder.h"

namespace ulp::exchange::tflite {

using Converter = ConverterRow<Builder>;
using ConvertFunction = Converter::Function;
using ConverterTable = std::span<const Converter>;

/// Null for an op without one.
ConvertFunction find_converter(const graph::Node& node);
/// The ops that have one.
std::vector<std::string_view> converter_names();
/// The element types in which LiteRT computes an op, where they are fewer than the file can hold.
std::span<const PeerTypes> peer_types();

// What files share.

/// Options of an operator.
template <typename OptionsT>
Options options_of(OptionsT made) {
  Options options;
  options.Set(std::move(made));
  return options;
}

/// A dimension of the graph as the file has it in this layout.
int64_t axis_in(Layout layout, int64_t dim, int64_t rank);

/// What a window reads along one dimension.
struct Window {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
  /// Elements behind the end that the last window reads.
  int64_t behind() const { return (out - 1) * stride + (kernel - 1) * dilation + 1 - in - pad; }
};
/// How windows over height and width are padded: by a word of the format where it has one, else by an operator before.
struct Padded {
  schema::Padding word = schema::Padding::VALID;
  bool apart = false;  ///< by PAD
};
Padded padded(const Window& height, const Window& width);
/// The image [N, H, W, C] with what these windows read around it: zeros, or the lowest number.
Index pad_image(Builder& builder, const graph::Node& node, Index image, const Window& height,
                const Window& width, bool lowest);
/// The channels-last tensor of a value of 3 or 4 dimensions as [N, H, W, C]; sequences have a height of 1.
Index image_of(Builder& builder, const graph::Node& node, const graph::Value& value, bool integer);
/// The two windows of a call whose kernel, stride and so on have `dims` entries.
struct Windows {
  Window height, width;
};
Windows windows_of(const Builder& builder, const graph::Node& node, const graph::Value& in,
                   const graph::Value& out, const std::vector<int64_t>& kernel,
                   const std::vector<int64_t>& stride, const std::vector<int64_t>& dilation,
                   const std::vector<int64_t>& pad);
/// Emits what `emit(image)` writes into an image; a sequence gets it reshaped into `made`.
template <typename Emit>
void write_image(Builder& builder, const graph::Node& node, const graph::Value& value, Index made,
                 const Emit& emit) {
  const Shape shape = builder.shape_of(node, value, Layout::channels_last);
  if (shape.sizes.size() == 4) return emit(made);
  Shape image = shape;
  for (auto* sizes : {&image.sizes, &image.signature}) sizes->insert(sizes->begin() + 1, 1);
  const Index whole = builder.like(made, image);
  emit(whole);
  builder.reshape(node, whole, made);
}

}  // namespace ulp::exchange::tflite
