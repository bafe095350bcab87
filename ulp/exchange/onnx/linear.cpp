// Linear layers. ONNX's MatMul wants the weight as [in, out], and so it is stored: no file has a Transpose of one.
#include <algorithm>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::Value;

bool is_attribute(const Value& value) {
  return value.producer->kind() == Node::Kind::attribute;
}

/// Codes of a weight that are stored, in static int8.
bool are_codes(const Value& value) {
  return value.producer->is("ulp::dequantize") && is_attribute(*value.producer->args.at(0).value);
}

/// A layer whose input has not the two dimensions of a Gemm.
bool multiplies(const Node& reader, const Value& weight) {
  if (!reader.is("aten::linear") || reader.arg("weight").value != &weight) return false;
  const Value* x = reader.arg("input").value;
  return x != nullptr && x != &weight && x->meta && x->meta->sizes.size() != 2;
}

/// Rows in the form of a Gemm, for a weight that other nodes read as it is: it is stored once.
void by_rows(Builder& builder, const Node& node, const Value& weight) {
  const std::string rows = builder.call(
      node, "Reshape", {builder.in(node, "input"), builder.ints({-1, fixed_size(node, weight, 1)})});
  Names inputs = {rows, builder.name_of(&weight)};
  if (const Value* bias = optional_value(node, "bias")) inputs.push_back(builder.name_of(bias));
  const std::string product = builder.call(node, "Gemm", std::move(inputs), {{"transB", int64_t{1}}});
  builder.result(node, "Reshape", {product, builder.sizes(node, sizes_of(node, *node.output()))});
}

void linear(Builder& builder, const Node& node) {
  const Value& weight = *value_arg(node, "weight");
  const std::string& x = builder.in(node, "input");
  const auto product = [&](const std::string& turned) { add_bias(builder, node, "MatMul", {x, turned}); };
  if (weight.producer->is("ulp::dequantize_weight")) return product(turned_blocks(builder, *weight.producer));
  const Value* before = before_turn(builder.graph(), weight);
  // Gemm is there of floats alone.
  if (!at::isFloatingType(type_of(*node.output())))
    return product(transposed(builder, node, builder.name_of(&weight), {1, 0}));
  if (rank_of(node, *value_arg(node, "input")) == 2) {
    Names inputs = {x, before == nullptr ? builder.name_of(&weight) : builder.name_in_out(*before)};
    if (const Value* bias = optional_value(node, "bias")) inputs.push_back(builder.name_of(bias));
    return builder.result(node, "Gemm", std::move(inputs), {{"transB", int64_t{before == nullptr}}});
  }
  if (before != nullptr) return product(builder.name_in_out(*before));
  if (is_turned(builder.graph(), weight)) {
    if (!is_attribute(weight)) return product(turned_codes(builder, *weight.producer));
    const auto turn = [&] { return builder.graph().attribute_tensor(&weight).t(); };
    return product(builder.derived(weight.producer->target(), "turned", turn));
  }
  if (is_attribute(weight) || are_codes(weight)) return by_rows(builder, node, weight);
  product(transposed(builder, node, builder.name_of(&weight), {1, 0}));
}

}  // namespace

bool is_turned(const graph::Graph& graph, const Value& weight) {
  if (!is_attribute(weight) && !are_codes(weight)) return false;
  const std::vector<Node*> readers = graph.users(&weight);
  return std::ranges::all_of(readers, [&](const Node* reader) { return multiplies(*reader, weight); });
}

const Value* before_turn(const graph::Graph& graph, const Value& weight) {
  if (!weight.producer->is("aten::t")) return nullptr;
  const Value* stored = weight.producer->args.at(0).value;
  if (stored == nullptr || !is_attribute(*stored)) return nullptr;
  const auto multiplies_it = [&](const Node* reader) {
    return reader->is("aten::linear") && reader->arg("weight").value == &weight &&
           reader->arg("input").value != &weight;
  };
  return std::ranges::all_of(graph.users(&weight), multiplies_it) ? stored : nullptr;
}

void add_bias(Builder& builder, const Node& node, const std::string& op, Names inputs) {
  const Value* bias = optional_value(node, "bias");
  if (bias == nullptr) return builder.result(node, op, std::move(inputs));
  builder.result(node, "Add", {builder.call(node, op, std::move(inputs)), builder.name_of(bias)});
}

ConverterTable linear_converters() {
  static constexpr Converter kTable[] = {{"aten::linear", linear}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
