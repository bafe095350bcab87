// Convolutions over three dimensions, in [N, D, H, W, C].
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

constexpr size_t kVolume = 3;  // dimensions of a window

/// Zeros in front of and behind each dimension.
Index padded_volume(Builder& builder, Index in, const std::vector<int64_t>& pads) {
  if (std::ranges::all_of(pads, [](int64_t one) { return one == 0; })) return in;
  Shape shape = builder.shape_of_tensor(in);
  std::vector<int64_t> pairs = {0, 0};
  for (size_t d = 0; d < kVolume; ++d) {
    for (auto* sizes : {&shape.sizes, &shape.signature})
      sizes->at(1 + d) += static_cast<int32_t>(pads[2 * d] + pads[2 * d + 1]);
    pairs.insert(pairs.end(), {pads[2 * d], pads[2 * d + 1]});
  }
  pairs.insert(pairs.end(), {0, 0});
  const Index made = builder.like(in, shape);
  builder.emit(Operation::PAD, {in, builder.pairs(pairs)}, {made}, options_of(schema::PadOptionsT()));
  return made;
}

/// Some of the channels, which are last.
Index channels_of(Builder& builder, Index in, int64_t start, int64_t count) {
  Shape shape = builder.shape_of_tensor(in);
  for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->back() = static_cast<int32_t>(count);
  const Index made = builder.like(in, shape);
  builder.emit(Operation::SLICE,
               {in, builder.ints({0, 0, 0, 0, start}), builder.ints({-1, -1, -1, -1, count})}, {made});
  return made;
}

/// A pair for each dimension; "same" has the odd one behind.
std::vector<int64_t> pads_of_volume(const Node& node, const std::vector<int64_t>& kernel,
                                    const std::vector<int64_t>& dilation) {
  std::vector<int64_t> pads;
  const graph::Argument& padding = node.arg("padding");
  const bool word = padding.kind == graph::Argument::Kind::literal && padding.literal.isString();
  for (size_t d = 0; d < kVolume; ++d) {
    const int64_t all = dilation[d] * (kernel[d] - 1);
    if (!word) {
      const int64_t one = ints_arg(node, "padding", kVolume)[d];
      pads.insert(pads.end(), {one, one});
    } else if (text_arg(node, "padding") == "same") {
      pads.insert(pads.end(), {all / 2, all - all / 2});
    } else {
      pads.insert(pads.end(), {0, 0});
    }
  }
  return pads;
}

struct VolumeLayer {
  at::Tensor weight, bias;  ///< [O, I, D, H, W] and [O]
  int64_t groups = 1;
  schema::Conv3DOptionsT options = {};
};

/// A layer whose channels do not mix, of windows of one element: a product and a sum.
void scale_channels(Builder& builder, Index in, const VolumeLayer& layer, Index out) {
  const Index scaled = builder.like(out, builder.shape_of_tensor(out));
  builder.emit(Operation::MUL, {in, builder.constant(layer.weight.flatten())}, {scaled},
               options_of(schema::MulOptionsT()));
  schema::AddOptionsT options;
  options.fused_activation_function = layer.options.fused_activation_function;
  builder.emit(Operation::ADD, {scaled, builder.constant(layer.bias)}, {out}, options_of(std::move(options)));
}

/// The operator has no groups: each one is a layer of its own.
void convolve_groups(Builder& builder, Index in, const VolumeLayer& layer, Index out) {
  const int64_t inputs = layer.weight.size(1), outputs = layer.weight.size(0) / layer.groups;
  Indices parts;
  for (int64_t g = 0; g < layer.groups; ++g) {
    const at::Tensor rows = layer.weight.narrow(0, g * outputs, outputs).permute({2, 3, 4, 1, 0});
    const Index from = layer.groups == 1 ? in : channels_of(builder, in, g * inputs, inputs);
    Shape shape = builder.shape_of_tensor(out);
    for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->back() = static_cast<int32_t>(outputs);
    const Index to = layer.groups == 1 ? out : builder.like(out, shape);
    builder.emit(Operation::CONV_3D,
                 {from, builder.constant(rows), builder.constant(layer.bias.narrow(0, g * outputs, outputs))},
                 {to}, options_of(layer.options));
    parts.push_back(to);
  }
  if (layer.groups == 1) return;
  schema::ConcatenationOptionsT options;
  options.axis = static_cast<int32_t>(kVolume) + 1;
  builder.emit(Operation::CONCATENATION, std::move(parts), {out}, options_of(std::move(options)));
}

void conv3d(Builder& builder, const Node& node) {
  const Value &x = *value_arg(node, "input"), *bias = optional_value(node, "bias");
  VolumeLayer layer{.weight = builder.stored(*value_arg(node, "weight")), .groups = int_arg(node, "groups")};
  if (!layer.weight.defined()) refuse(node, "expected a weight that is stored");
  layer.bias = bias != nullptr ? builder.stored(*bias) : torch::zeros({layer.weight.size(0)});
  if (!layer.bias.defined()) refuse(node, "expected a bias that is stored");
  const std::vector<int64_t> kernel = layer.weight.sizes().slice(2).vec(),
                             stride = ints_arg(node, "stride", kVolume),
                             dilation = ints_arg(node, "dilation", kVolume),
                             pads = pads_of_volume(node, kernel, dilation);
  layer.options.padding = schema::Padding::VALID;
  layer.options.stride_d = static_cast<int32_t>(stride[0]);
  layer.options.stride_h = static_cast<int32_t>(stride[1]);
  layer.options.stride_w = static_cast<int32_t>(stride[2]);
  layer.options.dilation_d_factor = static_cast<int32_t>(dilation[0]);
  layer.options.dilation_h_factor = static_cast<int32_t>(dilation[1]);
  layer.options.dilation_w_factor = static_cast<int32_t>(dilation[2]);
  const Ending ending = builder.ending_of(node, /*may_be_integer=*/false);
  layer.options.fused_activation_function = ending.fused;
  const Index in = padded_volume(builder, builder.numbers(node, &x, Layout::channels_last), pads);
  const Index out = builder.result(node, ending, Layout::channels_last);
  const std::vector<int64_t> ones(kVolume, 1);
  const bool alone = layer.groups == layer.weight.size(0) && layer.weight.size(1) == 1;
  if (alone && kernel == ones && stride == ones) return scale_channels(builder, in, layer, out);
  convolve_groups(builder, in, layer, out);
}

}  // namespace

ConverterTable volume_converters() {
  static constexpr Converter kTable[] = {{"aten::conv3d", conv3d}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
