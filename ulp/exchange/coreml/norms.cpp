// Normalisation.
#include <torch/types.h>
#include <torch/utils.h>

#include "ulp/exchange/coreml/converters.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Node;
using graph::Value;

/// A stored tensor of one number a channel, or as many of `otherwise` where there is none.
at::Tensor per_channel(Builder& builder, const Node& node, const char* argument, int64_t channels,
                       double otherwise) {
  const Value* given = optional_value(node, argument);
  if (given == nullptr) return torch::full({channels}, otherwise, torch::kDouble);
  const at::Tensor stored = builder.graph().attribute_tensor(given);
  if (!stored.defined()) refuse(node, "expected '", argument, "' to be a tensor that is stored");
  return stored.detach().to(torch::kDouble);
}

/// What is left of batch norms that no layer before them takes: x w / sqrt(var + eps) + b - mean w / sqrt(var + eps).
void batch_norm(Builder& builder, const Node& node) {
  if (bool_arg(node, "training")) refuse(node, "expected running statistics");
  const torch::NoGradGuard no_grad;
  const int64_t channels = fixed_size(node, *value_arg(node, "input"), 1);
  const auto given = [&](const char* argument, double otherwise) {
    return per_channel(builder, node, argument, channels, otherwise);
  };
  const at::Tensor factor = given("weight", 1) / (given("running_var", 1) + number_arg(node, "eps")).sqrt();
  scale_channels(builder, node, builder.in(node, "input"), factor,
                 given("bias", 0) - given("running_mean", 0) * factor);
}

void layer_norm(Builder& builder, const Node& node) {
  std::vector<int64_t> axes;
  for (int64_t i = std::ssize(ints_arg(node, "normalized_shape")); i > 0; --i) axes.push_back(-i);
  Inputs inputs = {{"x", builder.in(node, "input")},
                   {"axes", builder.ints(axes)},
                   {"epsilon", builder.number(number_arg(node, "eps"), type_of(*node.output()))}};
  if (const Value* weight = optional_value(node, "weight"))
    inputs.emplace_back("gamma", builder.name_of(weight));
  if (const Value* bias = optional_value(node, "bias")) inputs.emplace_back("beta", builder.name_of(bias));
  builder.result(node, "layer_norm", std::move(inputs));
}

/// Each group is a row of a layer norm; weight and bias come behind it.
void group_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> shape = shape_of(node);
  const int64_t groups = int_arg(node, "num_groups");
  int64_t numbers = 1;
  for (const int64_t size : shape) numbers *= size;
  const Type rows{type, {shape[0], groups, numbers / shape[0] / groups}};
  const std::string normed = builder.call(node, "layer_norm",
                                          {{"x", reshaped(builder, node, builder.name_of(&x), rows)},
                                           {"axes", builder.ints({-1})},
                                           {"epsilon", builder.number(number_arg(node, "eps"), type)}},
                                          rows);
  scale_channels(builder, node, reshaped(builder, node, normed, {type, shape}),
                 per_channel(builder, node, "weight", shape[1], 1),
                 per_channel(builder, node, "bias", shape[1], 0));
}

}  // namespace

void scale_channels(Builder& builder, const Node& node, const std::string& x, const at::Tensor& factor,
                    const at::Tensor& summand) {
  std::vector<int64_t> shape(static_cast<size_t>(rank_of(node, *node.output()) - 1), 1);
  shape[0] = factor.numel();
  const auto constant = [&](const at::Tensor& numbers, const char* what) {
    return builder.constant(numbers.reshape(shape).to(type_of(*node.output())), node.name() + what);
  };
  builder.result(node, "add",
                 {{"x", binary(builder, node, "mul", x, constant(factor, "_factor"))},
                  {"y", constant(summand, "_summand")}});
}

ConverterTable norm_converters() {
  static constexpr Converter kTable[] = {
      {"aten::batch_norm", batch_norm}, {"aten::layer_norm", layer_norm}, {"aten::group_norm", group_norm}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
