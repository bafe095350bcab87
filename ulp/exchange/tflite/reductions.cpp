// Sums, means and extremes over dimensions, and what is built on them.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;
using Dims = std::vector<int64_t>;

/// Without the dimensions `dims` the rest of a channels-last tensor is in the graph's order.
bool leaves_order(const Dims& dims, int64_t rank) {
  const auto goes = [&](int64_t dim) { return std::ranges::find(dims, dim) != dims.end(); };
  bool pixels = true;
  for (int64_t dim = 2; dim < rank; ++dim) pixels = pixels && goes(dim);
  return pixels || goes(1);
}

void reduce(Builder& builder, const Node& node, Operation op) {
  const Value& x = *value_arg(node, "self");
  const int64_t rank = rank_of(node, x);
  const bool keep = has_arg(node, "keepdim") && bool_arg(node, "keepdim");
  Dims dims = reduced_dims(node, x);
  for (int64_t& dim : dims) dim += dim < 0 ? rank : 0;
  const bool last = builder.layout_of(&x) == Layout::channels_last && (keep || leaves_order(dims, rank));
  const Layout layout = last ? Layout::channels_last : Layout::as_is;
  for (int64_t& dim : dims) dim = axis_in(layout, dim, rank);
  schema::ReducerOptionsT options;
  options.keep_dims = keep;
  const Index in = builder.cast(node, builder.numbers(node, &x, layout), exchange::type_of(*node.output()));
  const Index made = builder.make_numbers(node, node.output(), keep ? layout : Layout::as_is);
  builder.emit(op, {in, builder.ints(dims)}, {made}, options_of(std::move(options)));
}

void sum(Builder& builder, const Node& node) {
  reduce(builder, node, Operation::SUM);
}
void mean(Builder& builder, const Node& node) {
  reduce(builder, node, Operation::MEAN);
}
void amax(Builder& builder, const Node& node) {
  reduce(builder, node, Operation::REDUCE_MAX);
}
void amin(Builder& builder, const Node& node) {
  reduce(builder, node, Operation::REDUCE_MIN);
}

void prod(Builder& builder, const Node& node) {
  reduce(builder, node, Operation::REDUCE_PROD);
}
void any(Builder& builder, const Node& node) {
  reduce(builder, node, node.is("aten::any") ? Operation::REDUCE_ANY : Operation::REDUCE_ALL);
}

/// Places of the extremes of one dimension, as the node's result i.
void places(Builder& builder, const Node& node, bool largest, size_t i) {
  if (node.arg("dim").is_none()) refuse(node, "expected a dimension");
  const Value& x = *value_arg(node, "self");
  const int64_t dim = dim_arg(node, "dim", rank_of(node, x));
  const Index in = builder.numbers(node, &x), axis = builder.ints({dim});
  const Index made = builder.make_numbers(node, node.output(i), Layout::as_is);
  Index out = made;
  if (bool_arg(node, "keepdim")) {  // the operator drops it
    Shape shape = builder.shape_of(node, *node.output(i));
    for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->erase(sizes->begin() + dim);
    out = builder.like(made, shape);
  }
  if (largest) {
    schema::ArgMaxOptionsT options;
    options.output_type = schema::TensorType::INT64;
    builder.emit(Operation::ARG_MAX, {in, axis}, {out}, options_of(std::move(options)));
  } else {
    schema::ArgMinOptionsT options;
    options.output_type = schema::TensorType::INT64;
    builder.emit(Operation::ARG_MIN, {in, axis}, {out}, options_of(std::move(options)));
  }
  if (out != made) builder.reshape(node, out, made);
}

void argmax(Builder& builder, const Node& node) {
  places(builder, node, node.is("aten::argmax"), 0);
}

/// max and min: over all, or over a dimension with the places.
void extreme(Builder& builder, const Node& node) {
  const bool largest = node.is("aten::max");
  if (node.outputs().size() > 1 && !builder.graph().users(node.output(1)).empty())
    places(builder, node, largest, 1);
  reduce(builder, node, largest ? Operation::REDUCE_MAX : Operation::REDUCE_MIN);
}

void cumsum(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const Layout layout = builder.layout_of(&x);
  const int64_t rank = rank_of(node, x), axis = axis_in(layout, dim_arg(node, "dim", rank), rank);
  const Index in = builder.cast(node, builder.numbers(node, &x, layout), exchange::type_of(*node.output()));
  builder.emit(Operation::CUMSUM, {in, builder.constant(torch::full({}, axis, torch::kInt))},
               {builder.make_numbers(node, node.output(), layout)}, options_of(schema::CumsumOptionsT()));
}

Options no_fusion(Operation op) {
  if (op == Operation::SUB) return options_of(schema::SubOptionsT());
  if (op == Operation::ADD) return options_of(schema::AddOptionsT());
  return op == Operation::MUL ? options_of(schema::MulOptionsT()) : Options();
}

/// (x - mean) / sqrt(variance + eps) weight + bias, over the last dimensions.
void layer_norm(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "input");
  const auto rank = static_cast<size_t>(rank_of(node, x)), count = ints_arg(node, "normalized_shape").size();
  const Shape whole = builder.shape_of(node, x);
  Shape rows = whole;
  Dims dims;
  for (size_t d = rank - count; d < rank; ++d) {
    dims.push_back(static_cast<int64_t>(d));
    rows.sizes[d] = rows.signature[d] = 1;
  }
  const auto call = [&](Operation op, Indices inputs, const Shape& shape) {
    const Index made = builder.between(node, shape);
    builder.emit(op, std::move(inputs), {made}, no_fusion(op));
    return made;
  };
  const auto mean_of = [&](Index of) {
    schema::ReducerOptionsT options;
    options.keep_dims = true;
    const Index made = builder.between(node, rows);
    builder.emit(Operation::MEAN, {of, builder.ints(dims)}, {made}, options_of(std::move(options)));
    return made;
  };
  const Index in = builder.numbers(node, &x), mean = mean_of(in);
  const Index variance = mean_of(call(Operation::SQUARED_DIFFERENCE, {in, mean}, whole));
  const Index stable = call(Operation::ADD, {variance, builder.scalar(number_arg(node, "eps"))}, rows);
  const Index factor = call(Operation::RSQRT, {stable}, rows);
  const Index centered = call(Operation::SUB, {in, mean}, whole);
  const Value *weight = optional_value(node, "weight"), *bias = optional_value(node, "bias");
  Index normed = centered, by = factor;
  if (weight != nullptr) {
    normed = call(Operation::MUL, {centered, factor}, whole);
    by = builder.numbers(node, weight);
  }
  const Index sum = bias == nullptr ? -1 : call(Operation::MUL, {normed, by}, whole);
  const Index made = builder.make_numbers(node, node.output(), Layout::as_is);
  if (bias == nullptr) return builder.emit(Operation::MUL, {normed, by}, {made}, no_fusion(Operation::MUL));
  builder.emit(Operation::ADD, {sum, builder.numbers(node, bias)}, {made}, no_fusion(Operation::ADD));
}

}  // namespace

ConverterTable reduce_converters() {
  static constexpr Converter kTable[] = {
      {"aten::sum", sum},       {"aten::mean", mean},     {"aten::amax", amax},
      {"aten::amin", amin},     {"aten::argmax", argmax}, {"aten::layer_norm", layer_norm},
      {"aten::argmin", argmax}, {"aten::prod", prod},     {"aten::any", any},
      {"aten::all", any},       {"aten::max", extreme},   {"aten::min", extreme},
      {"aten::cumsum", cumsum}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
