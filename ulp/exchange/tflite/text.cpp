// Products of two computed matrices, attention, and tensors that are made of sizes alone, which the file has as constants.
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "ulp/exchange/tflite/converters.h"
#include "ulp/graph/passes/fixed_tensor.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

Options product_options(bool turns_second) {
  schema::BatchMatMulOptionsT options;
  options.adj_y = turns_second;
  return options_of(std::move(options));
}

void matmul(Builder& builder, const Node& node) {
  const Value &a = *node.args.at(0).value, &b = *node.args.at(1).value;
  if (rank_of(node, a) < 2 || rank_of(node, b) < 2) refuse(node, "expected matrices");
  const Index left = builder.numbers(node, &a), right = builder.numbers(node, &b);
  builder.emit(Operation::BATCH_MATMUL, {left, right},
               {builder.make_numbers(node, node.output(), Layout::as_is)}, product_options(false));
}

/// What a query may see, as bools; -1 where it sees all.
Index visible_of(Builder& builder, const Node& node, const Shape& scores) {
  const Value* mask = optional_value(node, "attn_mask");
  if (mask != nullptr && exchange::type_of(*mask) == at::kBool) return builder.numbers(node, mask);
  if (!bool_arg(node, "is_causal")) return -1;
  const int64_t rows = scores.sizes[scores.sizes.size() - 2], columns = scores.sizes.back();
  return builder.constant(torch::ones({rows, columns}, torch::kBool).tril(), "causal");
}

/// softmax(q k^T scale + mask) v. What is hidden gets no weight, also where all is hidden, as in LibTorch.
void attention(Builder& builder, const Node& node) {
  if (has_arg(node, "enable_gqa") && bool_arg(node, "enable_gqa"))
    refuse(node, "expected as many heads of keys as of queries");
  if (number_arg(node, "dropout_p") != 0) refuse(node, "expected no dropout in eval mode");
  const Value &q = *value_arg(node, "query"), &k = *value_arg(node, "key"), &v = *value_arg(node, "value");
  const double scale =
      optional_number(node, "scale").value_or(1 / std::sqrt(static_cast<double>(fixed_size(node, q, -1))));
  Shape shape = builder.shape_of(node, q);
  const Shape keys = builder.shape_of(node, k);
  shape.sizes.back() = keys.sizes[keys.sizes.size() - 2];
  shape.signature.back() = keys.signature[keys.signature.size() - 2];
  const auto part = [&] { return builder.between(node, shape); };
  const auto call = [&](Operation op, Indices inputs, Options options = {}) {
    const Index made = part();
    builder.emit(op, std::move(inputs), {made}, std::move(options));
    return made;
  };
  const Index query = builder.numbers(node, &q), key = builder.numbers(node, &k);
  const Index product = call(Operation::BATCH_MATMUL, {query, key}, product_options(true));
  Index scores = call(Operation::MUL, {product, builder.scalar(scale)}, options_of(schema::MulOptionsT()));
  const Value* mask = optional_value(node, "attn_mask");
  if (mask != nullptr && exchange::type_of(*mask) != at::kBool)
    scores = call(Operation::ADD, {scores, builder.numbers(node, mask)}, options_of(schema::AddOptionsT()));
  const Index visible = visible_of(builder, node, shape);
  if (visible >= 0)
    scores =
        call(Operation::SELECT_V2, {visible, scores, builder.scalar(std::numeric_limits<float>::lowest())});
  schema::SoftmaxOptionsT options;
  options.beta = 1;
  Index weights = call(Operation::SOFTMAX, {scores}, options_of(std::move(options)));
  if (visible >= 0) {
    weights = call(Operation::SELECT_V2, {visible, weights, builder.scalar(0)});
  } else if (mask != nullptr && graph::may_hide_all_keys(builder.graph(), *mask)) {
    const Index hidden = builder.between(node, builder.shape_of(node, *mask), schema::TensorType::BOOL);
    builder.emit(Operation::EQUAL, {builder.numbers(node, mask), builder.scalar(-INFINITY)}, {hidden});
    weights = call(Operation::SELECT_V2, {hidden, builder.scalar(0), weights});
  }
  builder.emit(Operation::BATCH_MATMUL, {weights, builder.numbers(node, &v)},
               {builder.make_numbers(node, node.output(), Layout::as_is)}, product_options(false));
}

/// Sizes of a tensor that is made, all of them numbers.
std::vector<int64_t> made_sizes(const Builder& builder, const Node& node) {
  const Shape shape = builder.shape_of(node, *node.output());
  if (builder.free_batch() && shape.signature != shape.sizes)
    refuse(node, "expected a batch that is a number for this shape");
  return {shape.sizes.begin(), shape.sizes.end()};
}

void filled(Builder& builder, const Node& node, const c10::Scalar& value) {
  const at::ScalarType type = exchange::type_of(*node.output());
  builder.fold(node.output(), torch::full(made_sizes(builder, node), value, torch::dtype(type)));
}

void zeros(Builder& builder, const Node& node) {
  filled(builder, node, 0);
}
void ones(Builder& builder, const Node& node) {
  filled(builder, node, 1);
}
void full(Builder& builder, const Node& node) {
  filled(builder, node, scalar_arg(node, "fill_value"));
}

/// start, start + step, ...: as many as the result has.
void arange(Builder& builder, const Node& node) {
  const auto number = [&](const char* argument, double otherwise) {
    if (!has_arg(node, argument)) return otherwise;
    const graph::Argument& arg = node.arg(argument);
    if (arg.kind == graph::Argument::Kind::batch && builder.free_batch() && !arg.batch.constant())
      refuse(node, "expected a batch that is a number for this '", argument, "'");
    return arg.kind == graph::Argument::Kind::batch ? static_cast<double>(builder.size_of(arg.batch))
                                                    : optional_number(node, argument).value_or(otherwise);
  };
  const int64_t count = made_sizes(builder, node).at(0);
  const at::ScalarType type = exchange::type_of(*node.output());
  const at::Tensor steps = torch::arange(count, torch::kDouble) * number("step", 1) + number("start", 0);
  builder.fold(node.output(), steps.to(type));
}

/// A triangle of a constant.
void triangle(Builder& builder, const Node& node) {
  const at::Tensor whole = builder.stored(*value_arg(node, "self"));
  if (!whole.defined()) refuse(node, "expected a tensor that does not follow the inputs");
  const int64_t diagonal = int_arg(node, "diagonal");
  builder.fold(node.output(), node.is("aten::tril") ? whole.tril(diagonal) : whole.triu(diagonal));
}

}  // namespace

ConverterTable text_converters() {
  static constexpr Converter kTable[] = {
      {"aten::matmul", matmul},    {"aten::mm", matmul},
      {"aten::bmm", matmul},       {"aten::zeros", zeros},
      {"aten::zeros_like", zeros}, {"aten::new_zeros", zeros},
      {"aten::ones", ones},        {"aten::ones_like", ones},
      {"aten::new_ones", ones},    {"aten::full", full},
      {"aten::full_like", full},   {"aten::new_full", full},
      {"aten::arange", arange},    {"aten::tril", triangle},
      {"aten::triu", triangle},    {"aten::scaled_dot_product_attention", attention}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
