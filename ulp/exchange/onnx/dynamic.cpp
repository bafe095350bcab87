// Linear layers that quantize their input as they run: float(sum (q - z) w) * (s * scale) + bias, as
// ulp/quant/weights/dynamic.h says.
#include <torch/types.h>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

constexpr double kHighest = 255;

/// The sums in int32, and the scale of the input.
struct Product {
  std::string sums, scale;
};

/// Stored codes [out, in].
at::Tensor codes_of(const Builder& builder, const Node& node) {
  const at::Tensor codes = builder.graph().attribute_tensor(value_arg(node, "weight"));
  if (!codes.defined()) refuse(node, "expected codes that are stored");
  return codes;
}

std::string turned_weight(Builder& builder, const Node& node) {
  return builder.derived(value_arg(node, "weight")->producer->target(), "turned",
                         [&] { return codes_of(builder, node).t(); });
}

/// One scale for all, by the operator that ONNX has for it: runtimes make an integer layer of it.
Product by_tensor(Builder& builder, const Node& node) {
  const Names q = builder.calls(node, "DynamicQuantizeLinear", 3, {builder.in(node, "x")});
  return {builder.call(node, "MatMulInteger", {q[0], turned_weight(builder, node), q[2]}), q[1]};
}

/// Scale, its inverse and zero point of each row, f32 [.., 1].
struct Rows {
  std::string scale, inverse, zero;
};

/// In double precision, as kernels::dynamic_affine.
Rows rows_of(Builder& builder, const Node& node) {
  constexpr double kSmallest = 0x1p-126;
  const auto call = [&](const char* op, Names inputs) { return builder.call(node, op, std::move(inputs)); };
  const auto number = [&](double value) { return builder.scalar(value, at::kDouble); };
  const auto bound = [&](const char* reduce, const char* with_zero) {
    const std::string outermost = reduced(builder, node, reduce, builder.in(node, "x"), {-1}, /*keep=*/true);
    return builder.cast(node, call(with_zero, {outermost, builder.scalar(0, at::kFloat)}), at::kDouble);
  };
  const std::string low = bound("ReduceMin", "Min"), high = bound("ReduceMax", "Max");
  const std::string span = call("Div", {call("Sub", {high, low}), number(kHighest)});
  const std::string scale = call("Max", {span, number(kSmallest)});
  const std::string place = call("Round", {call("Div", {call("Neg", {low}), scale})});
  const std::string zero = call("Clip", {place, number(0), number(kHighest)});
  const std::string single = builder.cast(node, scale, at::kFloat);
  return {.scale = single,
          .inverse = call("Div", {builder.scalar(1, at::kFloat), single}),
          .zero = builder.cast(node, zero, at::kFloat)};
}

/// A scale a row. The zero points come out of the sums by the weights' own ones: no runtime takes one for each row.
Product by_row(Builder& builder, const Node& node) {
  const auto call = [&](const char* op, Names inputs) { return builder.call(node, op, std::move(inputs)); };
  const Rows rows = rows_of(builder, node);
  const std::string scaled = call("Mul", {builder.in(node, "x"), rows.inverse});
  const std::string above = call("Max", {scaled, call("Neg", {rows.zero})});
  const std::string inside =
      call("Min", {above, call("Sub", {builder.scalar(kHighest, at::kFloat), rows.zero})});
  const std::string codes = builder.cast(node, call("Add", {call("Round", {inside}), rows.zero}), at::kByte);
  const std::string sums = call("MatMulInteger", {codes, turned_weight(builder, node)});
  const std::string& of_weights =
      builder.derived(value_arg(node, "weight")->producer->target() + ".sums", "",
                      [&] { return codes_of(builder, node).sum({1}, /*keepdim=*/false, at::kInt); });
  const std::string zero = builder.cast(node, rows.zero, at::kInt);
  return {call("Sub", {sums, call("Mul", {zero, of_weights})}), rows.scale};
}

void linear_dynamic(Builder& builder, const Node& node) {
  const Product product = bool_arg(node, "per_tensor") ? by_tensor(builder, node) : by_row(builder, node);
  const std::string scale = builder.call(node, "Mul", {product.scale, builder.in(node, "weight_scale")});
  add_bias(builder, node, "Mul", {builder.cast(node, product.sums, at::kFloat), scale});
}

void recurrent(Builder&, const Node& node) {
  refuse(node,
         "expected a recurrent layer in float: ONNX has none that quantizes its states; leave it out by the "
         "recipe's ops");
}

}  // namespace

ConverterTable dynamic_converters() {
  static constexpr Converter kTable[] = {{"ulp::linear_dynamic", linear_dynamic},
                                         {"ulp::lstm_dynamic", recurrent},
                                         {"ulp::gru_dynamic", recurrent}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
