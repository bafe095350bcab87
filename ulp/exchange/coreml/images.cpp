// Padding and the moves between channels and pixels.
#include <algorithm>

#include "ulp/exchange/coreml/converters.h"

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
  if (std::ranges::any_of(pairs, [](int64_t pad) { return pad < 0; }))
    refuse(node, "expected pads that cut nothing off");
  std::vector<int64_t> pads;
  for (size_t i = pairs.size(); i > 0; i -= 2) pads.insert(pads.end(), {pairs[i - 2], pairs[i - 1]});
  const double value = has_arg(node, "value") ? optional_number(node, "value").value_or(0) : 0;
  builder.result(node, "pad",
                 {{"x", builder.name_of(&x)},
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

void any_pad(Builder& builder, const Node& node) {
  const std::string mode = text_arg(node, "mode");
  if (mode == "circular") refuse(node, "expected a mode other than circular");
  pad(builder, node, mode == "reflect" ? "reflect" : mode == "replicate" ? "replicate" : "constant");
}

void pixel_shuffle(Builder& builder, const Node& node) {
  builder.result(node, "pixel_shuffle",
                 {{"x", builder.in(node, "self")},
                  {"upscale_factor", builder.integer(int_arg(node, "upscale_factor"))}});
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
      {"aten::pixel_shuffle", pixel_shuffle},       {"aten::channel_shuffle", channel_shuffle}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
