// Weights and biases of convolutions and linear layers, float or quantized, as constants of the plan.
#pragma once

#include <optional>
#include <string>

#include "ulp/lower/builder.h"

namespace ulp::lowering {

/// ulp::quantize of an activation, in the engine's terms: codes u8 in [0, 255].
Form quantizer_form(const graph::Graph& graph, const graph::Node& quantize);
/// The same for a node that makes codes of all 8 bits with the scale and zero point of these arguments; s8 codes are
/// u8 codes moved by 128, with the zero point.
Form codes_form(const graph::Graph& graph, const graph::Node& node, const char* scale, const char* zero_point,
                bool s8);

/// True when the value is ulp::dequantize of stored codes.
bool is_quantized_constant(const graph::Graph& graph, const graph::Value* value);

/// Another shape of a weight, or another order of its elements, for the step.
using ShapeWeight = at::Tensor (*)(const at::Tensor&);

/// Adds "weight" (f32 or bf16) and "bias" (f32) of a float layer to the step.
void add_float_constants(Builder& builder, const graph::Node& node, runtime::DataType type,
                         runtime::Step& step, ShapeWeight shape = nullptr);

/// Adds "weight" (i8), "weight_scale" and "bias" (i32, of scale input_scale * weight_scale[c]) of an 8-bit
/// layer.
void add_quantized_constants(Builder& builder, const graph::Node& node, float input_scale,
                             runtime::Step& step, ShapeWeight shape = nullptr);

/// Adds "weight" (i8), "weight_scale" and "bias" (f32) of a layer that quantizes its input as it runs.
void add_dynamic_constants(Builder& builder, const graph::Node& node, runtime::Step& step);

/// True when the value is ulp::dequantize_weight of stored codes.
bool is_coded_weight(const graph::Graph& graph, const graph::Value* value);
/// Adds "weight" (codes), "weight_scale" and, where there is one, "weight_zero" or "weight_minimum" of a layer whose
/// weight is_coded.
void add_coded_weight(Builder& builder, const graph::Node& node, runtime::Step& step);

/// The tensor of a parameter, buffer or constant argument; throws Unsupported for a computed one.
at::Tensor attribute_arg(const graph::Graph& graph, const graph::Node& node, std::string_view name);
/// Adds the tensor of an argument under this role, if it is not None, as f32 or `type`.
void add_float_constant(Builder& builder, const graph::Node& node, std::string_view argument,
                        const char* role, runtime::Step& step,
                        runtime::DataType type = runtime::DataType::f32);

}  // namespace ulp::lowering
