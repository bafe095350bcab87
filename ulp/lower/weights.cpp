#include "ulp/lower/weights.h"

#include <ATen/TensorOperators.h>

#include <optional>

#include "ulp/quant/static/bias_quantization.h"

namespace ulp::lowering {

using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

std::string attribute_name(const Value* value) {
  return value->producer->target();
}

std::string without_suffix(std::string name, const std::string& suffix) {
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

/// Codes with a symmetric scale per output channel.
struct Codes {
  std::string name;
  at::Tensor values;
  at::Tensor scale;  ///< f32[O]
};

Codes read_codes(const Graph& graph, const Node& layer, const Value* value, at::ScalarType dtype) {
  const Node& node = *value->producer;
  Codes codes{.name = attribute_name(node.arg("q").value),
              .values = attribute_arg(graph, node, "q"),
              .scale = attribute_arg(graph, node, "scale").to(at::kFloat)};
  if (codes.values.scalar_type() != dtype) {
    unsupported(layer, "expected '", codes.name, "' to hold ", dtype, ", got ", codes.values.scalar_type());
  }
  if (attribute_arg(graph, node, "zero_point").any().item<bool>()) {
    unsupported(layer, "expected '", codes.name, "' to be symmetric (every zero point 0)");
  }
  const int64_t channels = codes.values.size(0);
  const int64_t axis = int_arg(node, "axis");
  if (codes.scale.numel() == 1) codes.scale = codes.scale.reshape({1}).expand({channels});
  if (axis > 0 || codes.scale.numel() != channels) {
    unsupported(layer, "expected '", codes.name, "' to have one scale, or one per output channel");
  }
  return codes;
}

void add_quantized_bias(Builder& builder, const Node& node, float input_scale, const at::Tensor& weight_scale,
                        Step& step) {
  const Graph& graph = builder.graph();
  const Value* bias = node.arg("bias").value;
  std::string name;
  at::Tensor values;
  if (is_quantized_constant(graph, bias)) {
    const Codes codes = read_codes(graph, node, bias, at::kInt);
    if (!codes.scale.equal(weight_scale * input_scale)) {
      unsupported(node, "expected the scale of '", codes.name, "' to be input scale * weight scale");
    }
    name = without_suffix(codes.name, ".int32");
    values = codes.values;
  } else {
    const auto codes = quant::bias_codes(attribute_arg(graph, node, "bias"), weight_scale * input_scale);
    if (!codes) unsupported(node, "the bias is too large for int32 at the scale of its input and weight");
    values = *codes;
    name = attribute_name(bias);
  }
  step.constants["bias"] = builder.constant(name, make_constant(values, DataType::i32));
}

}  // namespace

at::Tensor attribute_arg(const Graph& graph, const Node& node, std::string_view name) {
  const graph::Argument& arg = node.arg(name);
  const at::Tensor tensor = arg.is_value() ? graph.attribute_tensor(arg.value) : at::Tensor();
  if (!tensor.defined()) unsupported(node, "expected '", name, "' to be a parameter, buffer or constant");
  return tensor;
}

Form codes_form(const Graph& graph, const Node& node, const char* scale_name, const char* zero_name,
                bool s8) {
  const at::Tensor scale = attribute_arg(graph, node, scale_name);
  const at::Tensor zero_point = attribute_arg(graph, node, zero_name);
  if (scale.numel() != 1 || zero_point.numel() != 1) {
    unsupported(node, "expected one scale for a whole activation, got ", scale.numel());
  }
  const size_t rank = shape_of(node, *node.output()).size();
  return {DataType::u8, inner_layout(rank), scale.to(at::kFloat).item<float>(),
          static_cast<int32_t>(zero_point.item<int64_t>() + (s8 ? 128 : 0))};
}

Form quantizer_form(const Graph& graph, const Node& quantize) {
  const int64_t qmin = int_arg(quantize, "qmin");
  const int64_t qmax = int_arg(quantize, "qmax");
  const bool s8 = qmin == -128 && qmax == 127;
  if (!s8 && (qmin != 0 || qmax != 255)) {
    unsupported(quantize, "expected codes [0, 255] or [-128, 127] for an activation, got [", qmin, ", ", qmax,
                "]");
  }
  return codes_form(graph, quantize, "scale", "zero_point", s8);
}

bool is_quantized_constant(const Graph& graph, const Value* value) {
  const Node* node = value->producer;
  if (node == nullptr || !node->is("ulp::dequantize")) return false;
  const graph::Argument& codes = node->arg("q");
  return codes.is_value() && graph.attribute_tensor(codes.value).defined();
}

void add_float_constants(Builder& builder, const Node& node, DataType type, Step& step, ShapeWeight shape) {
  const Graph& graph = builder.graph();
  const Value* weight = value_arg(node, "weight");
  if (is_quantized_constant(graph, weight)) {
    unsupported(node, "has an 8-bit weight but a float input; quantize the input too");
  }
  const at::Tensor values = attribute_arg(graph, node, "weight");
  step.constants["weight"] =
      builder.constant(attribute_name(weight), make_constant(shape ? shape(values) : values, type));
  if (node.arg("bias").is_none()) return;
  const at::Tensor bias = attribute_arg(graph, node, "bias");
  step.constants["bias"] =
      builder.constant(attribute_name(node.arg("bias").value), make_constant(bias, DataType::f32));
}

void add_quantized_constants(Builder& builder, const Node& node, float input_scale, Step& step,
                             ShapeWeight shape) {
  const Codes weight = read_codes(builder.graph(), node, value_arg(node, "weight"), at::kChar);
  const std::string name = without_suffix(weight.name, ".int8");
  step.constants["weight"] =
      builder.constant(name, make_constant(shape ? shape(weight.values) : weight.values, DataType::i8));
  step.constants["weight_scale"] =
      builder.constant(name + ".scale", make_constant(weight.scale, DataType::f32));
  if (!node.arg("bias").is_none()) add_quantized_bias(builder, node, input_scale, weight.scale, step);
}

void add_float_constant(Builder& builder, const Node& node, std::string_view argument, const char* role,
                        Step& step, DataType type) {
  if (node.arg(argument).is_none()) return;
  const at::Tensor tensor = attribute_arg(builder.graph(), node, argument);
  step.constants[role] =
      builder.constant(attribute_name(node.arg(argument).value), make_constant(tensor, type));
}

void add_dynamic_constants(Builder& builder, const Node& node, Step& step) {
  const at::Tensor codes = attribute_arg(builder.graph(), node, "weight");
  if (codes.scalar_type() != at::kChar) unsupported(node, "expected int8 weights, got ", codes.scalar_type());
  const std::string name = without_suffix(attribute_name(node.arg("weight").value), ".int8");
  step.constants["weight"] = builder.constant(name, make_constant(codes, DataType::i8));
  add_float_constant(builder, node, "weight_scale", "weight_scale", step);
  add_float_constant(builder, node, "bias", "bias", step);
}

bool is_coded_weight(const Graph& graph, const Value* value) {
  const Node* node = value->producer;
  if (node == nullptr || !node->is("ulp::dequantize_weight")) return false;
  const graph::Argument& codes = node->arg("codes");
  return codes.is_value() && graph.attribute_tensor(codes.value).defined();
}

void add_coded_weight(Builder& builder, const Node& node, Step& step) {
  const Node& coded = *value_arg(node, "weight")->producer;
  const at::Tensor codes = attribute_arg(builder.graph(), coded, "codes");
  const DataType type = codes.scalar_type() == at::kByte ? DataType::u8 : DataType::i8;
  step.constants["weight"] =
      builder.constant(attribute_name(coded.arg("codes").value), make_constant(codes, type));
  add_float_constant(builder, coded, "scale", "weight_scale", step);
  add_float_constant(builder, coded, "minimum", "weight_minimum", step);
  if (coded.arg("zero_point").is_none()) return;
  const at::Tensor zero = attribute_arg(builder.graph(), coded, "zero_point");
  step.constants["weight_zero"] =
      builder.constant(attribute_name(coded.arg("zero_point").value), make_constant(zero, DataType::u8));
}

}  // namespace ulp::lowering
