// Padding and the moves between channels and pixels.
#include <limits>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// LibTorch lists pairs from the last dimension on, ONNX all that lies before and then all behind.
void pad(Builder& builder, const Node& node, const std::string& mode) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> pairs = ints_arg(node, has_arg(node, "pad") ? "pad" : "padding");
  const auto rank = static_cast<size_t>(rank_of(node, x));
  if (pairs.size() % 2 != 0 || pairs.size() > 2 * rank) refuse(node, "expected a pair for a dimension");
  std::vector<int64_t> pads(2 * rank, 0);
  for (size_t i = 0; i < pairs.size() / 2; ++i) {
    pads[rank - 1 - i] = pairs[2 * i];
    pads[2 * rank - 1 - i] = pairs[2 * i + 1];
  }
  Names inputs = {builder.name_of(&x), builder.ints(pads)};
  if (mode == "constant")
    inputs.push_back(builder.scalar(optional_number(node, "value").value_or(0), type_of(x)));
  builder.result(node, "Pad", std::move(inputs), {{"mode", mode}});
}

void constant_pad(Builder& builder, const Node& node) {
  pad(builder, node, "constant");
}
void reflection_pad(Builder& builder, const Node& node) {
  pad(builder, node, "reflect");
}
void replication_pad(Builder& builder, const Node& node) {
  pad(builder, node, "edge");
}

void any_pad(Builder& builder, const Node& node) {
  const std::string mode = text_arg(node, "mode");
  if (mode == "circular") refuse(node, "expected a mode other than circular");
  pad(builder, node, mode == "replicate" ? "edge" : mode);
}

void pixel_shuffle(Builder& builder, const Node& node) {
  builder.result(node, "DepthToSpace", {builder.in(node, "self")},
                 {{"blocksize", int_arg(node, "upscale_factor")}, {"mode", "CRD"}});
}

/// Its parts of the channels come first, the channels of a result behind them: DCR.
void depth_to_space(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "x");
  const int64_t h = int_arg(node, "h"), w = int_arg(node, "w");
  const int64_t crop_h = int_arg(node, "crop_h"), crop_w = int_arg(node, "crop_w");
  const bool cropped = crop_h > 0 || crop_w > 0;
  std::string whole;
  const auto join = [&](const char* op, Names inputs, Attributes attributes) {
    if (!cropped) return builder.result(node, op, std::move(inputs), std::move(attributes));
    whole = builder.call(node, op, std::move(inputs), std::move(attributes));
  };
  if (h == w) {
    join("DepthToSpace", {builder.name_of(&x)}, {{"blocksize", h}, {"mode", "DCR"}});
  } else {
    const int64_t channels = fixed_size(node, x, 1) / (h * w), rows = fixed_size(node, x, 2),
                  columns = fixed_size(node, x, 3);
    const std::string apart = builder.call(
        node, "Reshape", {builder.name_of(&x), builder.ints({0, h, w, channels, rows, columns})});
    join("Reshape",
         {transposed(builder, node, apart, {0, 3, 4, 1, 5, 2}),
          builder.ints({0, channels, rows * h, columns * w})},
         {});
  }
  if (!cropped) return;
  const auto end = [](int64_t crop) { return crop > 0 ? -crop : std::numeric_limits<int64_t>::max(); };
  builder.result(
      node, "Slice",
      {whole, builder.ints({0, 0}), builder.ints({end(crop_h), end(crop_w)}), builder.ints({2, 3})});
}

/// Channels as [groups, C / groups], the other way round.
void channel_shuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t groups = int_arg(node, "groups"), channels = fixed_size(node, x, 1);
  const std::string split =
      builder.call(node, "Reshape", {builder.name_of(&x), builder.ints({0, groups, channels / groups, -1})});
  reshape_to_output(builder, node, transposed(builder, node, split, {0, 2, 1, 3}));
}

}  // namespace

ConverterTable image_converters() {
  static constexpr Converter kTable[] = {
      {"aten::constant_pad_nd", constant_pad},      {"aten::pad", any_pad},
      {"aten::reflection_pad1d", reflection_pad},   {"aten::reflection_pad2d", reflection_pad},
      {"aten::replication_pad1d", replication_pad}, {"aten::replication_pad2d", replication_pad},
      {"aten::pixel_shuffle", pixel_shuffle},       {"aten::channel_shuffle", channel_shuffle},
      {"ulp::depth_to_space", depth_to_space}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
