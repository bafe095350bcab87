// Padding and the moves between channels and pixels.
#include <algorithm>

#include "ulp/exchange/coreml/along.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// LibTorch lists pairs from the last dimension on, Core ML those of the last dimensions from the front.
void pad(Builder& builder, const Node& node, const char* mode) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> pairs = ints_arg(node, has_arg(node, "pad") ? "pad" : "padding");
  if (pairs.size() % 2 != 0 || std::ssize(pairs) > 2 * rank_of(node, x))
    refuse(node, "expected a pair for a dimension");
  Along along(builder, node, x);
  std::vector<int64_t> pads;
  for (size_t i = pairs.size(); i > 0; i -= 2) {
    const int64_t dim = std::ssize(along.shape()) - static_cast<int64_t>(i) / 2;
    const int64_t size = along.shape().at(static_cast<size_t>(dim));
    const int64_t begin = std::max<int64_t>(-pairs[i - 2], 0),
                  end = size + std::min<int64_t>(pairs[i - 1], 0);
    if (begin >= end) refuse(node, "expected pads that leave something");
    if (begin > 0 || end < size) along.slice(dim, begin, end);
    pads.insert(pads.end(), {std::max<int64_t>(pairs[i - 2], 0), std::max<int64_t>(pairs[i - 1], 0)});
  }
  const double value = has_arg(node, "value") ? optional_number(node, "value").value_or(0) : 0;
  builder.result(node, "pad",
                 {{"x", along.name()},
                  {"pad", builder.ints(pads)},
                  {"mode", builder.word(mode)},
                  {"constant_val", builder.number(value, type_of(x))}});
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

/// Each dimension goes on with its own elements.
void circular_pad(Builder& builder, const Node& node) {
  const std::vector<int64_t> pairs = ints_arg(node, "pad");
  Along along(builder, node, *value_arg(node, "self"));
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const int64_t dim = std::ssize(along.shape()) - 1 - static_cast<int64_t>(i) / 2;
    const int64_t size = along.shape().at(static_cast<size_t>(dim));
    std::vector<int64_t> ids;
    for (int64_t at = -pairs[i]; at < size + pairs[i + 1]; ++at) ids.push_back(((at % size) + size) % size);
    if (pairs[i] != 0 || pairs[i + 1] != 0) along.pick(dim, ids);
  }
  along.finish();
}

void any_pad(Builder& builder, const Node& node) {
  const std::string mode = text_arg(node, "mode");
  if (mode == "circular") return circular_pad(builder, node);
  pad(builder, node, mode == "reflect" ? "reflect" : mode == "replicate" ? "replicate" : "constant");
}

void pixel_shuffle(Builder& builder, const Node& node) {
  builder.result(node, "pixel_shuffle",
                 {{"x", builder.in(node, "self")},
                  {"upscale_factor", builder.integer(int_arg(node, "upscale_factor"))}});
}

/// The pixels of each block become channels.
void pixel_unshuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(x);
  const std::vector<int64_t> from = shape_of(node, x), to = shape_of(node);
  if (from.size() != 4) refuse(node, "expected images with a batch");
  const int64_t block = int_arg(node, "downscale_factor"), images = from[0] * from[1];
  const std::string split =
      reshaped(builder, node, builder.name_of(&x), {type, {images, to[2], block, to[3], block}});
  const std::string turned =
      transposed(builder, node, split, {0, 2, 4, 1, 3}, {type, {images, block, block, to[2], to[3]}});
  builder.result(node, "reshape", {{"x", turned}, {"shape", builder.ints(to)}});
}

/// Numbers of the image at the places that a grid of [-1, 1] names.
void grid_sampler(Builder& builder, const Node& node) {
  constexpr const char *kModes[] = {"bilinear", "nearest"},
                       *kPaddings[] = {"constant", "border", "reflection"};
  const int64_t mode = int_arg(node, "interpolation_mode"), padding = int_arg(node, "padding_mode");
  const bool corners = bool_arg(node, "align_corners");
  if (mode < 0 || mode > 1) refuse(node, "expected bilinear or nearest");
  if (padding < 0 || padding > 2) refuse(node, "expected padding by zeros, border or reflection");
  if (rank_of(node, *node.args.at(0).value) != 4) refuse(node, "expected images");
  // MIL's reflection turns around at the middle of the last pixel, its symmetric at the pixel's end.
  const char* beyond = padding == 2 && !corners ? "symmetric" : kPaddings[padding];
  const at::ScalarType type = type_of(*node.output());
  builder.result(node, "resample",
                 {{"x", builder.name_of(node.args.at(0).value)},
                  {"coordinates", builder.name_of(node.args.at(1).value)},
                  {"sampling_mode", builder.word(kModes[mode])},
                  {"padding_mode", builder.word(beyond)},
                  {"padding_value", builder.number(0, type)},
                  {"coordinates_mode", builder.word("normalized_minus_one_to_one")},
                  {"align_corners", builder.flag(corners)}});
}

/// Channels as [groups, C / groups], the other way round.
void channel_shuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const at::ScalarType type = type_of(x);
  const std::vector<int64_t> shape = shape_of(node, x);
  const int64_t groups = int_arg(node, "groups"), each = shape.at(1) / groups;
  int64_t pixels = 1;
  for (size_t d = 2; d < shape.size(); ++d) pixels *= shape[d];
  const std::string split =
      reshaped(builder, node, builder.name_of(&x), {type, {shape[0], groups, each, pixels}});
  const std::string turned =
      transposed(builder, node, split, {0, 2, 1, 3}, {type, {shape[0], each, groups, pixels}});
  builder.result(node, "reshape", {{"x", turned}, {"shape", builder.ints(shape)}});
}

}  // namespace

ConverterTable image_converters() {
  static constexpr Converter kTable[] = {
      {"aten::constant_pad_nd", constant_pad},      {"aten::pad", any_pad},
      {"aten::reflection_pad1d", reflection_pad},   {"aten::reflection_pad2d", reflection_pad},
      {"aten::replication_pad1d", replication_pad}, {"aten::replication_pad2d", replication_pad},
      {"aten::pixel_shuffle", pixel_shuffle},       {"aten::pixel_unshuffle", pixel_unshuffle},
      {"aten::channel_shuffle", channel_shuffle},   {"aten::grid_sampler", grid_sampler}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
