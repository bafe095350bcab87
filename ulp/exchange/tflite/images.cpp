// Padding and the moves between channels and pixels.
#include <torch/types.h>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

/// Pairs of LibTorch begin with the last dimension.
Index pads_of(Builder& builder, const Node& node, Layout layout, int64_t rank) {
  const std::vector<int64_t> given = ints_arg(node, has_arg(node, "pad") ? "pad" : "padding");
  if (given.size() % 2 != 0 || std::ssize(given) > 2 * rank) refuse(node, "expected a pair for a dimension");
  std::vector<int64_t> pairs(static_cast<size_t>(2 * rank), 0);
  for (int64_t i = 0; i < std::ssize(given) / 2; ++i) {
    const auto axis = static_cast<size_t>(axis_in(layout, rank - 1 - i, rank)),
               from = static_cast<size_t>(2 * i);
    if (given[from] < 0 || given[from + 1] < 0) refuse(node, "expected padding that cuts nothing off");
    pairs[2 * axis] = given[from];
    pairs[2 * axis + 1] = given[from + 1];
  }
  return builder.pairs(pairs);
}

void pad(Builder& builder, const Node& node, const std::string& mode) {
  const Value& x = *value_arg(node, "self");
  if (mode != "constant" && mode != "reflect") refuse(node, "expected a constant or a reflection around it");
  const Layout layout = builder.layout_of(&x);
  const Index in = builder.numbers(node, &x, layout), pads = pads_of(builder, node, layout, rank_of(node, x));
  const Index made = builder.make_numbers(node, node.output(), layout);
  if (mode == "reflect")
    return builder.emit(Operation::MIRROR_PAD, {in, pads}, {made}, options_of(schema::MirrorPadOptionsT()));
  const at::Tensor value =
      torch::full({1}, scalar_arg(node, "value", 0), torch::dtype(exchange::type_of(*node.output())));
  builder.emit(Operation::PADV2, {in, pads, builder.constant(value)}, {made},
               options_of(schema::PadV2OptionsT()));
}

void constant_pad(Builder& builder, const Node& node) {
  pad(builder, node, "constant");
}
void reflection_pad(Builder& builder, const Node& node) {
  pad(builder, node, "reflect");
}
void any_pad(Builder& builder, const Node& node) {
  pad(builder, node, text_arg(node, "mode"));
}

/// Channels as rows of `rows`, the other way round.
Index turned_channels(Builder& builder, const Node& node, Index image, int64_t rows) {
  const Shape shape = builder.shape_of_tensor(image);
  const int32_t channels = shape.sizes.back(), columns = static_cast<int32_t>(channels / rows);
  int32_t pixels = 1;
  for (size_t d = 0; d + 1 < shape.sizes.size(); ++d) pixels *= shape.sizes[d];
  const auto first = static_cast<int32_t>(rows);
  const int32_t free = shape.signature == shape.sizes ? pixels : -1;
  const Index split = builder.like(image, {{pixels, first, columns}, {free, first, columns}});
  const Index turned = builder.like(image, {{pixels, columns, first}, {free, columns, first}});
  const Index made = builder.like(image, shape);
  builder.reshape(node, image, split);
  builder.emit(Operation::TRANSPOSE, {split, builder.ints({0, 2, 1})}, {turned},
               options_of(schema::TransposeOptionsT()));
  builder.reshape(node, turned, made);
  return made;
}

void channel_shuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  const Index in = builder.tensor_of(node, &x, Layout::channels_last, integer);
  const Index made = turned_channels(builder, node, in, int_arg(node, "groups"));
  builder.place(node.output(), made, Layout::channels_last, integer ? &x : nullptr);
}

Options depth_options(int64_t block) {
  schema::DepthToSpaceOptionsT options;
  options.block_size = static_cast<int32_t>(block);
  return options_of(std::move(options));
}

/// The format has the place within a block outside of the channel, LibTorch inside.
void pixel_shuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  const int64_t block = int_arg(node, "upscale_factor"), channels = fixed_size(node, x, 1);
  const Index in = builder.tensor_of(node, &x, Layout::channels_last, integer);
  const Index turned = turned_channels(builder, node, in, channels / (block * block));
  builder.emit(Operation::DEPTH_TO_SPACE, {turned},
               {builder.make_moved(node, node.output(), Layout::channels_last, &x, integer)},
               depth_options(block));
}

/// Blocks of channels become pixels; the last rows and columns are cut off.
void depth_to_space(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const bool integer = builder.has_codes(&x);
  const int64_t block = int_arg(node, "h"), crop_h = int_arg(node, "crop_h"),
                crop_w = int_arg(node, "crop_w");
  if (int_arg(node, "w") != block) refuse(node, "expected strides that are equal in height and width");
  const Index in = builder.tensor_of(node, &x, Layout::channels_last, integer);
  const Index made = builder.make_moved(node, node.output(), Layout::channels_last, &x, integer);
  if (crop_h == 0 && crop_w == 0)
    return builder.emit(Operation::DEPTH_TO_SPACE, {in}, {made}, depth_options(block));
  Shape whole = builder.shape_of_tensor(made);
  const int64_t height = whole.sizes[1], width = whole.sizes[2];
  for (auto* sizes : {&whole.sizes, &whole.signature}) {
    sizes->at(1) += static_cast<int32_t>(crop_h);
    sizes->at(2) += static_cast<int32_t>(crop_w);
  }
  const Index all = builder.like(made, whole);
  builder.emit(Operation::DEPTH_TO_SPACE, {in}, {all}, depth_options(block));
  builder.emit(Operation::SLICE, {all, builder.ints({0, 0, 0, 0}), builder.ints({-1, height, width, -1})},
               {made});
}

}  // namespace

ConverterTable image_converters() {
  static constexpr Converter kTable[] = {
      {"aten::constant_pad_nd", constant_pad},    {"aten::pad", any_pad},
      {"aten::reflection_pad1d", reflection_pad}, {"aten::reflection_pad2d", reflection_pad},
      {"aten::channel_shuffle", channel_shuffle}, {"aten::pixel_shuffle", pixel_shuffle},
      {"ulp::depth_to_space", depth_to_space}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
