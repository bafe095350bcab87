// Padding and the moves between channels and pixels.
#include <algorithm>
#include <limits>
#include <string_view>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

bool is_max_pool(const Node& node) {
  return node.op().find("max_pool") != std::string_view::npos;
}

/// What the border holds. ONNX Runtime 1.31 makes a border of zeros that a max pool reads that pool's own,
/// which is -infinity there (Pad_Fusion); it leaves one of -0 alone. Convolutions, for which the two are
/// alike, keep 0.
c10::Scalar border_of(const Builder& builder, const Node& node, at::ScalarType type) {
  const c10::Scalar value = scalar_arg(node, "value", 0);
  if (!at::isFloatingType(type) || value.toDouble() != 0) return value;
  const auto& nodes = builder.graph().nodes();
  const auto users = builder.graph().users(node.output());
  const bool pooled = std::ranges::any_of(nodes, [](const auto& other) { return is_max_pool(*other); });
  const bool convolved = !users.empty() && std::ranges::all_of(users, [](const Node* user) {
    return user->op().find("conv") != std::string_view::npos;
  });
  return pooled && !convolved ? c10::Scalar(-0.0) : value;
}

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
  if (mode == "constant") inputs.push_back(builder.scalar(border_of(builder, node, type_of(x)), type_of(x)));
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

/// What lies behind a dimension's end is its begin: parts of it are joined, one dimension after the other.
void circular_pad(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const std::vector<int64_t> pairs = ints_arg(node, has_arg(node, "pad") ? "pad" : "padding");
  const int64_t rank = rank_of(node, x);
  if (pairs.size() % 2 != 0 || std::ssize(pairs) > 2 * rank) refuse(node, "expected a pair for a dimension");
  std::string name = builder.name_of(&x);
  const auto part = [&](int64_t dim, int64_t begin, int64_t end) {
    return builder.call(node, "Slice",
                        {name, builder.ints({begin}), builder.ints({end}), builder.ints({dim})});
  };
  for (size_t i = 0; i < pairs.size() / 2; ++i) {
    const int64_t dim = rank - 1 - static_cast<int64_t>(i), before = pairs[2 * i], behind = pairs[2 * i + 1];
    if (before < 0 || behind < 0) refuse(node, "expected pads that cut nothing off");
    Names parts;
    if (before > 0) parts.push_back(part(dim, -before, std::numeric_limits<int64_t>::max()));
    parts.push_back(name);
    if (behind > 0) parts.push_back(part(dim, 0, behind));
    if (parts.size() > 1) name = builder.call(node, "Concat", std::move(parts), {{"axis", dim}});
  }
  builder.alias(node.output(), name);
}

void any_pad(Builder& builder, const Node& node) {
  const std::string mode = text_arg(node, "mode");
  if (mode == "circular") return circular_pad(builder, node);
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

/// Pixels of a square become channels behind their own one.
void pixel_unshuffle(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const int64_t factor = int_arg(node, "downscale_factor");
  if (rank_of(node, x) != 4) refuse(node, "expected [N, C, H, W]");
  const int64_t channels = fixed_size(node, x, 1), rows = fixed_size(node, x, 2) / factor,
                columns = fixed_size(node, x, 3) / factor;
  const std::string apart = builder.call(
      node, "Reshape", {builder.name_of(&x), builder.ints({0, channels, rows, factor, columns, factor})});
  builder.result(node, "Reshape",
                 {transposed(builder, node, apart, {0, 1, 3, 5, 2, 4}),
                  builder.ints({0, channels * factor * factor, rows, columns})});
}

/// A grid's places are between -1 and 1.
void grid_sample(Builder& builder, const Node& node) {
  constexpr int64_t kOtherWords = 20;
  constexpr const char* kPadding[] = {"zeros", "border", "reflection"};
  const int64_t mode = int_arg(node, "interpolation_mode"), padding = int_arg(node, "padding_mode");
  if (rank_of(node, *value_arg(node, "input")) != 4) refuse(node, "expected images of two dimensions");
  if (mode > 1 || padding > 2) refuse(node, "expected a bilinear or the nearest pixel");
  const char* linear = builder.opset() >= kOtherWords ? "linear" : "bilinear";
  builder.result(node, "GridSample", {builder.in(node, "input"), builder.in(node, "grid")},
                 {{"mode", std::string(mode == 0 ? linear : "nearest")},
                  {"padding_mode", std::string(kPadding[padding])},
                  {"align_corners", int64_t{bool_arg(node, "align_corners")}}});
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
      {"ulp::depth_to_space", depth_to_space},      {"aten::pixel_unshuffle", pixel_unshuffle},
      {"aten::grid_sampler", grid_sample},          {"aten::grid_sampler_2d", grid_sample}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
