// Normalisation.
#include <torch/types.h>

#include <limits>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

/// A parameter of one number a channel, or as many of `otherwise` where there is none.
std::string per_channel(Builder& builder, const Node& node, const char* argument, int64_t channels,
                        double otherwise) {
  if (const Value* given = optional_value(node, argument)) return builder.name_of(given);
  return builder.constant(torch::full({channels}, otherwise, torch::dtype(type_of(*node.output()))));
}

void batch_norm(Builder& builder, const Node& node) {
  if (bool_arg(node, "training")) refuse(node, "expected running statistics");
  const int64_t channels = fixed_size(node, *value_arg(node, "input"), 1);
  builder.result(node, "BatchNormalization",
                 {builder.in(node, "input"), per_channel(builder, node, "weight", channels, 1),
                  per_channel(builder, node, "bias", channels, 0), builder.in(node, "running_mean"),
                  builder.in(node, "running_var")},
                 {{"epsilon", static_cast<float>(number_arg(node, "eps"))}});
}

void layer_norm(Builder& builder, const Node& node) {
  const std::vector<int64_t> shape = ints_arg(node, "normalized_shape");
  Names inputs = {builder.in(node, "input")};
  const Value *weight = optional_value(node, "weight"), *bias = optional_value(node, "bias");
  inputs.push_back(weight ? builder.name_of(weight)
                          : builder.constant(torch::ones(shape, torch::dtype(type_of(*node.output())))));
  if (bias != nullptr) inputs.push_back(builder.name_of(bias));
  builder.result(node, "LayerNormalization", std::move(inputs),
                 {{"axis", -std::ssize(shape)}, {"epsilon", static_cast<float>(number_arg(node, "eps"))}});
}

/// One number a channel as [C, 1, 1], for a tensor of this rank.
std::string over_image(Builder& builder, const Node& node, const std::string& x, int64_t rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank - 1), 1);
  shape[0] = -1;
  return builder.call(node, "Reshape", {x, builder.ints(shape)});
}

/// Each group is one channel of an instance norm; weight and bias come behind it.
void group_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const at::ScalarType type = type_of(*node.output());
  const int64_t groups = int_arg(node, "num_groups"), rank = rank_of(node, x);
  const std::string rows =
      builder.call(node, "Reshape", {builder.name_of(&x), builder.ints({0, groups, -1})});
  const std::string normed = builder.call(
      node, "InstanceNormalization",
      {rows, builder.constant(torch::ones({groups}, type)), builder.constant(torch::zeros({groups}, type))},
      {{"epsilon", static_cast<float>(number_arg(node, "eps"))}});
  const Value *weight = optional_value(node, "weight"), *bias = optional_value(node, "bias");
  const Names shaped = {normed, builder.sizes(node, sizes_of(node, x))};
  if (weight == nullptr) return builder.result(node, "Reshape", shaped);
  const std::string back = builder.call(node, "Reshape", shaped);
  const Names factors = {back, over_image(builder, node, builder.name_of(weight), rank)};
  if (bias == nullptr) return builder.result(node, "Mul", factors);
  builder.result(
      node, "Add",
      {builder.call(node, "Mul", factors), over_image(builder, node, builder.name_of(bias), rank)});
}

void instance_norm(Builder& builder, const Node& node) {
  if (!bool_arg(node, "use_input_stats")) return batch_norm(builder, node);
  const int64_t channels = fixed_size(node, *value_arg(node, "input"), 1);
  builder.result(node, "InstanceNormalization",
                 {builder.in(node, "input"), per_channel(builder, node, "weight", channels, 1),
                  per_channel(builder, node, "bias", channels, 0)},
                 {{"epsilon", static_cast<float>(number_arg(node, "eps"))}});
}

/// x by the root of the mean of its squares.
void rms_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const at::ScalarType type = type_of(*node.output());
  const std::vector<int64_t> shape = ints_arg(node, "normalized_shape");
  std::vector<int64_t> dims;
  for (int64_t d = -std::ssize(shape); d < 0; ++d) dims.push_back(d + rank_of(node, x));
  const std::string& name = builder.name_of(&x);
  const std::string mean =
      reduced(builder, node, "ReduceMean", builder.call(node, "Mul", {name, name}), dims, /*keep=*/true);
  const double eps = optional_number(node, "eps").value_or(std::numeric_limits<float>::epsilon());
  const std::string root =
      builder.call(node, "Sqrt", {builder.call(node, "Add", {mean, builder.scalar(eps, type)})});
  const Value* weight = optional_value(node, "weight");
  const Names quotient = {name, root};
  if (weight == nullptr) return builder.result(node, "Div", quotient);
  builder.result(node, "Mul", {builder.call(node, "Div", quotient), builder.name_of(weight)});
}

}  // namespace

ConverterTable norm_converters() {
  static constexpr Converter kTable[] = {{"aten::batch_norm", batch_norm},
                                         {"aten::layer_norm", layer_norm},
                                         {"aten::group_norm", group_norm},
                                         {"aten::instance_norm", instance_norm},
                                         {"aten::rms_norm", rms_norm}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
