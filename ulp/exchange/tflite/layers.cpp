// Convolutions and linear layers. The format has no layer without a bias in integers, so one of zeros stands for it.
#include <torch/types.h>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

// Versions of the operators that brought what is used.
constexpr int32_t kIntegers = 3, kGroups = 6, kDilatedDepthwise = 2;
constexpr int32_t kIntegerRows = 4, kKeptDims = 5, kScalePerRow = 12;

/// Weight and bias as the operator reads them.
struct Weights {
  Index weight = -1, bias = -1;
  bool per_channel = false;
};

/// Codes that the format's integer layers take: signed weights around 0, biases in 32 bits.
bool has_layer_codes(const Builder& builder, const Node& node) {
  const StoredCodes weight = builder.stored_codes(*value_arg(node, "weight"));
  if (!weight.codes.defined() || weight.codes.scalar_type() != at::kChar) return false;
  if (weight.zero_point.any().item<bool>() || weight.axis > 0) return false;
  const Value* bias = optional_value(node, "bias");
  if (bias == nullptr) return true;
  const StoredCodes codes = builder.stored_codes(*bias);
  return codes.codes.defined() && codes.codes.scalar_type() == at::kInt &&
         !codes.zero_point.any().item<bool>();
}

Steps steps_of(const at::Tensor& scale, int32_t axis) {
  const at::Tensor flat = scale.to(at::kFloat).contiguous();
  const auto* first = flat.const_data_ptr<float>();
  return {{first, first + flat.numel()}, std::vector<int64_t>(static_cast<size_t>(flat.numel()), 0), axis};
}

std::string name_of(const Value& value) {
  const Node& node = *value.producer;
  if (node.is("ulp::dequantize")) return node.args.at(0).value->producer->target();
  return node.kind() == Node::Kind::attribute ? node.target() : value.name;  // of one that is made: ones
}

/// `turn` puts a weight's dimensions in the operator's order, in which those of the results become `axis`.
template <typename Turn>
Weights weights_of(Builder& builder, const Node& node, bool integer, const Turn& turn, int32_t axis) {
  const Value &weight = *value_arg(node, "weight"), *bias = optional_value(node, "bias");
  const int64_t channels = fixed_size(node, weight, 0);
  if (!integer) {
    const at::Tensor numbers = builder.stored(weight);
    if (!numbers.defined()) refuse(node, "expected a weight that is stored");
    const at::Tensor sums = bias != nullptr ? builder.stored(*bias) : torch::zeros({channels});
    if (!sums.defined()) refuse(node, "expected a bias that is stored");
    const Index made = builder.constant(turn(numbers), name_of(weight));
    return {made, bias != nullptr ? builder.constant(sums, name_of(*bias)) : builder.constant(sums)};
  }
  const StoredCodes codes = builder.stored_codes(weight);
  const Steps steps = steps_of(codes.scale, axis);
  const float input = builder.steps_of(value_arg(node, "input")).scale.at(0);
  const at::Tensor bias_scale = (codes.scale.to(at::kFloat) * input).expand({codes.scale.numel()});
  const Steps bias_steps = steps_of(bias_scale, 0);
  const at::Tensor sums =
      bias != nullptr ? builder.stored_codes(*bias).codes : torch::zeros({channels}, torch::kInt);
  return {builder.constant(turn(codes.codes), name_of(weight), &steps),
          builder.constant(sums, bias != nullptr ? name_of(*bias) : node.name() + ".bias", &bias_steps),
          codes.scale.numel() > 1};
}

std::vector<int64_t> padding_of(const Node& node, const std::vector<int64_t>& kernel,
                                const std::vector<int64_t>& dilation) {
  const graph::Argument& padding = node.arg("padding");
  if (padding.kind != graph::Argument::Kind::literal || !padding.literal.isString())
    return ints_arg(node, "padding", kernel.size());
  std::vector<int64_t> pads(kernel.size(), 0);
  for (size_t d = 0; text_arg(node, "padding") == "same" && d < kernel.size(); ++d)
    pads[d] = dilation[d] * (kernel[d] - 1) / 2;
  return pads;
}

template <typename OptionsT>
OptionsT window_options(const Windows& windows, const Padded& how, schema::Activation fused) {
  OptionsT options;
  options.padding = how.word;
  options.stride_h = static_cast<int32_t>(windows.height.stride);
  options.stride_w = static_cast<int32_t>(windows.width.stride);
  options.dilation_h_factor = static_cast<int32_t>(windows.height.dilation);
  options.dilation_w_factor = static_cast<int32_t>(windows.width.dilation);
  options.fused_activation_function = fused;
  return options;
}

/// [O, I, (H,) W] as [O, H, W, I].
at::Tensor as_conv(const at::Tensor& weight) {
  return (weight.dim() == 3 ? weight.unsqueeze(2) : weight).permute({0, 2, 3, 1});
}
/// [O, 1, (H,) W] as [1, H, W, O].
at::Tensor as_depthwise(const at::Tensor& weight) {
  return (weight.dim() == 3 ? weight.unsqueeze(2) : weight).permute({1, 2, 3, 0});
}

void conv(Builder& builder, const Node& node) {
  const Value &x = *value_arg(node, "input"), &weight = *value_arg(node, "weight");
  const auto dims = static_cast<size_t>(rank_of(node, weight) - 2);
  if (dims > 2) refuse(node, "expected a convolution of one or two dimensions");
  std::vector<int64_t> kernel;
  for (size_t d = 0; d < dims; ++d) kernel.push_back(fixed_size(node, weight, static_cast<int64_t>(d) + 2));
  const std::vector<int64_t> dilation = ints_arg(node, "dilation", dims);
  const Windows windows = windows_of(builder, node, x, *node.output(), kernel, ints_arg(node, "stride", dims),
                                     dilation, padding_of(node, kernel, dilation));
  const int64_t groups = int_arg(node, "groups"), channels = fixed_size(node, x, 1);
  const bool depthwise = groups > 1 && groups == channels;
  const Ending ending = builder.ending_of(node, builder.has_codes(&x) && has_layer_codes(builder, node));
  const Weights weights = depthwise ? weights_of(builder, node, ending.integer, as_depthwise, 3)
                                    : weights_of(builder, node, ending.integer, as_conv, 0);
  Index image = image_of(builder, node, x, ending.integer);
  const Padded how = padded(windows.height, windows.width);
  if (how.apart) image = pad_image(builder, node, image, windows.height, windows.width, /*lowest=*/false);
  const Indices inputs = {image, weights.weight, weights.bias};
  const Index made = builder.result(node, ending, Layout::channels_last);
  write_image(builder, node, *node.output(), made, [&](Index out) {
    const int32_t integers = ending.integer ? kIntegers : 1;
    if (!depthwise) {
      auto options = window_options<schema::Conv2DOptionsT>(windows, how, ending.fused);
      return builder.emit(Operation::CONV_2D, inputs, {out}, options_of(std::move(options)),
                          groups > 1 ? kGroups : integers);
    }
    auto options = window_options<schema::DepthwiseConv2DOptionsT>(windows, how, ending.fused);
    options.depth_multiplier = static_cast<int32_t>(fixed_size(node, weight, 0) / channels);
    const bool dilated = windows.height.dilation > 1 || windows.width.dilation > 1;
    builder.emit(Operation::DEPTHWISE_CONV_2D, inputs, {out}, options_of(std::move(options)),
                 std::max(integers, dilated ? kDilatedDepthwise : 1));
  });
}

void linear(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const bool flattened = builder.layout_of(&x) == Layout::flattened;
  const auto turn = [&](const at::Tensor& rows) {
    if (!flattened) return rows;
    const int64_t channels = builder.flattened_channels(&x);
    return rows.reshape({rows.size(0), channels, -1}).transpose(1, 2).reshape({rows.size(0), -1});
  };
  const Ending ending = builder.ending_of(node, builder.has_codes(&x) && has_layer_codes(builder, node));
  const Weights weights = weights_of(builder, node, ending.integer, turn, 0);
  const Index in = builder.tensor_of(node, &x, flattened ? Layout::flattened : Layout::as_is, ending.integer);
  schema::FullyConnectedOptionsT options;
  options.fused_activation_function = ending.fused;
  options.keep_num_dims = rank_of(node, x) != 2;
  int32_t version = ending.integer ? kIntegerRows : 1;
  if (options.keep_num_dims) version = kKeptDims;
  if (weights.per_channel) version = kScalePerRow;
  const Index made = builder.result(node, ending, Layout::as_is);
  builder.emit(Operation::FULLY_CONNECTED, {in, weights.weight, weights.bias}, {made},
               options_of(std::move(options)), version);
}

}  // namespace

ConverterTable layer_converters() {
  static constexpr Converter kTable[] = {
      {"aten::conv1d", conv}, {"aten::conv2d", conv}, {"aten::linear", linear}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
