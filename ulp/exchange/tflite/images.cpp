// Padding and the moves between channels and pixels.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/tflite/along.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

/// Pairs as [dimension of the graph]{before, behind}; they begin with the last dimension.
struct Around {
  int64_t dim, before, behind;
};
std::vector<Around> around_of(const Node& node, int64_t rank) {
  const std::vector<int64_t> given = ints_arg(node, has_arg(node, "pad") ? "pad" : "padding");
  if (given.size() % 2 != 0 || std::ssize(given) > 2 * rank) refuse(node, "expected a pair for a dimension");
  std::vector<Around> all;
  for (size_t i = 0; i < given.size() / 2; ++i)
    all.push_back({rank - 1 - static_cast<int64_t>(i), given[2 * i], given[2 * i + 1]});
  return all;
}

/// What is added, as the operator reads it.
Index pads_of(Builder& builder, const Node& node, Layout layout, int64_t rank) {
  std::vector<int64_t> pairs(static_cast<size_t>(2 * rank), 0);
  for (const auto& [dim, before, behind] : around_of(node, rank)) {
    const auto axis = static_cast<size_t>(axis_in(layout, dim, rank));
    pairs[2 * axis] = std::max<int64_t>(before, 0);
    pairs[2 * axis + 1] = std::max<int64_t>(behind, 0);
  }
  return builder.pairs(pairs);
}

/// The element of the image in each place around it.
int64_t element_at(const std::string& mode, int64_t place, int64_t size) {
  if (mode == "replicate") return std::clamp<int64_t>(place, 0, size - 1);
  if (mode == "circular") return (place % size + size) % size;
  const int64_t back = place < 0 ? -place : place;  // reflect
  return back < size ? back : 2 * (size - 1) - back;
}

/// By picks along one dimension after the other. Codes stay codes.
void pad_by_picks(Builder& builder, const Node& node, const std::string& mode) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  const Layout layout = builder.layout_of(&x);
  const int64_t rank = rank_of(node, x);
  Index image = builder.tensor_of(node, &x, layout, integer);
  bool moved = false;
  for (const auto& [dim, before, behind] : around_of(node, rank)) {
    if (before == 0 && behind == 0) continue;
    const int64_t size = fixed_size(node, x, dim);
    if (mode == "circular" && (before < 0 || behind < 0))
      refuse(node, "expected sides of a circular pad that add, got one that cuts off");
    Picks picks;
    for (int64_t i = -before; i < size + behind; ++i) picks.push_back(element_at(mode, i, size));
    image = picked_along(builder, image, axis_in(layout, dim, rank), picks);
    moved = true;
  }
  if (!moved) return builder.share(node.output(), &x);
  builder.place(node.output(), image, layout, integer ? &x : nullptr);
}

/// What negative pairs cut off.
Index cut_off(Builder& builder, const Node& node, Index in, Layout layout, int64_t rank) {
  for (const auto& [dim, before, behind] : around_of(node, rank)) {
    const int64_t axis = axis_in(layout, dim, rank),
                  size = builder.shape_of_tensor(in).sizes.at(static_cast<size_t>(axis));
    if (before >= 0 && behind >= 0) continue;
    Picks kept;
    for (int64_t i = std::max<int64_t>(-before, 0); i < size + std::min<int64_t>(behind, 0); ++i)
      kept.push_back(i);
    if (kept.empty()) refuse(node, "expected an element to be left of each dimension");
    in = picked_along(builder, in, axis, kept);
  }
  return in;
}

void pad(Builder& builder, const Node& node, const std::string& mode) {
  const Value& x = *value_arg(node, "self");
  const int64_t rank = rank_of(node, x);
  const auto cuts = [](const Around& one) { return one.before < 0 || one.behind < 0; };
  const bool mirrors = mode == "reflect" && rank <= 4 && std::ranges::none_of(around_of(node, rank), cuts);
  if (mode != "constant" && !mirrors) return pad_by_picks(builder, node, mode);
  const Layout layout = builder.layout_of(&x);
  Index in = builder.numbers(node, &x, layout);
  if (mode == "constant") in = cut_off(builder, node, in, layout, rank);
  const Index pads = pads_of(builder, node, layout, rank);
  const Index made = builder.make_numbers(node, node.output(), layout);
  if (mirrors)
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
void replication_pad(Builder& builder, const Node& node) {
  pad(builder, node, "replicate");
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

/// The way back.
void pixel_unshuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  if (rank_of(node, x) != 4) refuse(node, "expected images");
  const bool integer = builder.has_codes(&x);
  const int64_t block = int_arg(node, "downscale_factor");
  const Index in = builder.tensor_of(node, &x, Layout::channels_last, integer);
  const Index blocks = builder.like(in, builder.shape_of(node, *node.output(), Layout::channels_last));
  schema::SpaceToDepthOptionsT options;
  options.block_size = static_cast<int32_t>(block);
  builder.emit(Operation::SPACE_TO_DEPTH, {in}, {blocks}, options_of(std::move(options)));
  const Index made = turned_channels(builder, node, blocks, block * block);
  builder.place(node.output(), made, Layout::channels_last, integer ? &x : nullptr);
}

/// Blocks of h rows and w columns as pixels: [N H, W, h, w C] with the rows before the columns.
Index spread_blocks(Builder& builder, const Node& node, Index in, int64_t h, int64_t w) {
  const Shape shape = builder.shape_of_tensor(in);
  const bool free = shape.signature != shape.sizes;
  const auto shaped = [&](std::vector<int32_t> sizes) {
    Shape made{sizes, sizes};
    if (free) made.signature[0] = -1;
    return made;
  };
  const auto rows = static_cast<int32_t>(h), row = static_cast<int32_t>(shape.sizes[3] / h);
  const int32_t lines = shape.sizes[0] * shape.sizes[1], width = shape.sizes[2];
  const Index split = builder.like(in, shaped({lines, width, rows, row})),
              turned = builder.like(in, shaped({lines, rows, width, row}));
  builder.reshape(node, in, split);
  builder.emit(Operation::TRANSPOSE, {split, builder.ints({0, 2, 1, 3})}, {turned},
               options_of(schema::TransposeOptionsT()));
  const auto columns = static_cast<int32_t>(w);
  const Index made =
      builder.like(in, shaped({shape.sizes[0], shape.sizes[1] * rows, width * columns, row / columns}));
  builder.reshape(node, turned, made);
  return made;
}

/// Blocks of channels become pixels; the last rows and columns are cut off.
void depth_to_space(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const bool integer = builder.has_codes(&x);
  const int64_t block = int_arg(node, "h"), crop_h = int_arg(node, "crop_h"),
                crop_w = int_arg(node, "crop_w");
  const Index in = builder.tensor_of(node, &x, Layout::channels_last, integer);
  const bool square = int_arg(node, "w") == block;
  const Index spread = square ? -1 : spread_blocks(builder, node, in, block, int_arg(node, "w"));
  if (!square && crop_h == 0 && crop_w == 0)
    return builder.place(node.output(), spread, Layout::channels_last, integer ? &x : nullptr);
  const Index made = builder.make_moved(node, node.output(), Layout::channels_last, &x, integer);
  if (crop_h == 0 && crop_w == 0)
    return builder.emit(Operation::DEPTH_TO_SPACE, {in}, {made}, depth_options(block));
  Shape whole = builder.shape_of_tensor(made);
  const int64_t height = whole.sizes[1], width = whole.sizes[2];
  for (auto* sizes : {&whole.sizes, &whole.signature}) {
    sizes->at(1) += static_cast<int32_t>(crop_h);
    sizes->at(2) += static_cast<int32_t>(crop_w);
  }
  Index all = spread;
  if (square) {
    all = builder.like(made, whole);
    builder.emit(Operation::DEPTH_TO_SPACE, {in}, {all}, depth_options(block));
  }
  builder.emit(Operation::SLICE, {all, builder.ints({0, 0, 0, 0}), builder.ints({-1, height, width, -1})},
               {made});
}

}  // namespace

ConverterTable image_converters() {
  static constexpr Converter kTable[] = {
      {"aten::constant_pad_nd", constant_pad},      {"aten::pad", any_pad},
      {"aten::reflection_pad1d", reflection_pad},   {"aten::reflection_pad2d", reflection_pad},
      {"aten::reflection_pad3d", reflection_pad},   {"aten::replication_pad1d", replication_pad},
      {"aten::replication_pad2d", replication_pad}, {"aten::replication_pad3d", replication_pad},
      {"aten::pixel_unshuffle", pixel_unshuffle},   {"aten::channel_shuffle", channel_shuffle},
      {"aten::pixel_shuffle", pixel_shuffle},       {"ulp::depth_to_space", depth_to_space}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
