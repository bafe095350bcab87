// Quantized graphs as QuantizeLinear and DequantizeLinear. Codes of activations are u8, which runtimes fuse on x86:
// signed ones move by 128 with their zero point. Weights are signed codes with a scale a channel.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

constexpr double kMoved = 128, kHighestCode = 255;

bool is_signed(const Value& codes) {
  return type_of(codes) == at::kChar;
}

/// Scale and zero point of an activation, one number each, under the names that they have in the graph.
struct Step {
  std::string scale, zero_point;
  double scale_value, zero_value;
};
Step step_of(Builder& builder, const Node& node, bool moved, const char* scale = "scale",
             const char* zero_point = "zero_point") {
  const at::Tensor s = stored_argument(builder, node, scale), z = stored_argument(builder, node, zero_point);
  if (s.numel() != 1) refuse(node, "expected one scale for an activation");
  const double zero = z.item<double>() + (moved ? kMoved : 0);
  const auto name = [&](const char* argument) {
    return value_arg(node, argument)->producer->target() + ".onnx";
  };
  return {.scale = builder.constant(s.reshape({}), name(scale)),
          .zero_point = builder.constant(torch::full({}, zero, torch::kByte), name(zero_point)),
          .scale_value = s.item<double>(),
          .zero_value = zero};
}

/// Codes of fewer than all u8 values: the numbers are clipped first, to what the outermost codes stand for.
std::string clipped(Builder& builder, const Node& node, const Step& step, double moved) {
  const std::string& x = builder.in(node, "x");
  const double low = static_cast<double>(int_arg(node, "qmin")) + moved;
  const double high = static_cast<double>(int_arg(node, "qmax")) + moved;
  if (low < 0 || high > kHighestCode) refuse(node, "expected codes of 8 bits");
  if (low == 0 && high == kHighestCode) return x;
  const auto bound = [&](double code) {
    return builder.scalar((code - step.zero_value) * step.scale_value, at::kFloat);
  };
  return builder.call(node, "Clip", {x, bound(low), bound(high)});
}

void quantize(Builder& builder, const Node& node) {
  if (int_arg(node, "axis") != -1) refuse(node, "expected one scale for an activation");
  const bool moved = is_signed(*node.output());
  const Step step = step_of(builder, node, moved);
  const std::string x = clipped(builder, node, step, moved ? kMoved : 0);
  builder.result(node, "QuantizeLinear", {x, step.scale, step.zero_point});
}

/// What a DequantizeLinear of stored codes reads: of a weight, or of a bias in int32, whose zero points are all 0. `turned`:
/// of a weight [out, in] as [in, out].
CallArguments stored_form(Builder& builder, const Node& node, bool turned) {
  const at::Tensor codes = stored_argument(builder, node, "q"),
                   scale = stored_argument(builder, node, "scale");
  const at::Tensor zero = stored_argument(builder, node, "zero_point");
  const int64_t axis = int_arg(node, "axis");
  const bool one = axis == -1;
  const auto at = [&](const char* argument) { return value_arg(node, argument)->producer->target(); };
  CallArguments form{
      {turned ? builder.derived(at("q"), "turned", [&] { return codes.t(); }) : builder.in(node, "q"),
       one ? builder.constant(scale.reshape({}), at("scale") + ".onnx") : builder.in(node, "scale")},
      {}};
  if (codes.scalar_type() == at::kInt) {
    if (zero.any().item<bool>()) refuse(node, "expected a bias whose zero point is 0");
  } else {
    const at::Tensor typed = (one ? zero.reshape({}) : zero).to(codes.scalar_type());
    form.inputs.push_back(builder.constant(typed, at("zero_point") + ".onnx"));
  }
  if (!one) form.attributes.push_back({"axis", turned ? 1 - axis : axis});
  return form;
}

void dequantize_stored(Builder& builder, const Node& node) {
  if (is_turned(builder.graph(), *node.output())) return;  // linear layers ask for it
  CallArguments form = stored_form(builder, node, /*turned=*/false);
  builder.result(node, "DequantizeLinear", std::move(form.inputs), std::move(form.attributes));
}

void dequantize(Builder& builder, const Node& node) {
  const Value& codes = *value_arg(node, "q");
  if (codes.producer->kind() == Node::Kind::attribute) return dequantize_stored(builder, node);
  const Step step = step_of(builder, node, is_signed(codes));
  builder.result(node, "DequantizeLinear", {builder.name_of(&codes), step.scale, step.zero_point});
}

/// Whether a sum of codes can lie in the middle of two averages: where a divisor can be even.
bool can_tie(const Node& node, const std::vector<int64_t>& kernel) {
  int64_t cells = 1;
  for (const int64_t size : kernel) cells *= size;
  const std::vector<int64_t> padding = ints_arg(node, "padding", kernel.size(), {0});
  const bool is_padded = std::ranges::any_of(padding, [](int64_t size) { return size != 0; });
  return cells % 2 == 0 || bool_arg(node, "ceil_mode") || (is_padded && !bool_arg(node, "count_include_pad"));
}

/// The average of the numbers between a DequantizeLinear and a QuantizeLinear, which runtimes fuse.
void average_codes(Builder& builder, const Node& node) {
  const Value& codes = *value_arg(node, "q");
  const Step from = step_of(builder, node, is_signed(codes));
  const Step to = step_of(builder, node, is_signed(*node.output()), "result_scale", "result_zero_point");
  const std::string x =
      builder.call(node, "DequantizeLinear", {builder.name_of(&codes), from.scale, from.zero_point});
  const std::vector<int64_t> kernel = ints_arg(node, "kernel_size");
  if (text_arg(node, "rounding") != "half_even" && can_tie(node, kernel))
    refuse(node,
           "expected an average that rounds what lies in the middle of two codes to even, as QuantizeLinear "
           "does, got "
           "half_away of Recipe::tflite_int8: quantize the float model by another profile (`--backend "
           "onnx_qdq`)");
  std::string mean;
  if (kernel.empty()) {
    mean = builder.call(node, "GlobalAveragePool", {x});
  } else {
    AverageWindow window = average_window(builder, node, codes, x, kernel.size());
    mean = builder.call(node, "AveragePool", {window.x}, std::move(window.attributes));
  }
  builder.result(node, "QuantizeLinear", {mean, to.scale, to.zero_point});
}

}  // namespace

std::string turned_codes(Builder& builder, const Node& node) {
  CallArguments form = stored_form(builder, node, /*turned=*/true);
  return builder.call(node, "DequantizeLinear", std::move(form.inputs), std::move(form.attributes));
}

ConverterTable quantize_converters() {
  static constexpr Converter kTable[] = {
      {"ulp::quantize", quantize}, {"ulp::dequantize", dequantize}, {"ulp::average_codes", average_codes}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
