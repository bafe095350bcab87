// Layers with parameters, and dropout that does nothing.
#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// Whether a matrix is one row of so many numbers, or absent.
bool is_row(const Builder& builder, int matrix, int64_t width) {
  return matrix < 0 || (builder.at(matrix).rows == RowCount{} && builder.at(matrix).width == width);
}

/// Adds a bias of other sizes than the columns of y, and gives the sum.
int add_broadcast_bias(Builder& builder, const graph::Node& node, int y) {
  const int bias = builder.broadcast(node, "bias", *node.output());
  const int sum = builder.make_like(y);
  builder.emit({.op = Op::add_scaled, .out = sum, .a = y, .b = bias, .p = {1.0F}});
  builder.set_needs_gradient(sum, builder.needs_gradient(y) || builder.needs_gradient(bias));
  builder.on_backward(sum, [&builder, y, bias](int gradient) {
    builder.pass_on(y, gradient);
    builder.pass_on(bias, gradient);
  });
  return sum;
}

void add_linear(Builder& builder, const graph::Node& node) {
  const int x = builder.padded(node, "input");
  const int weight = builder.outside(node, "weight");
  if (weight < 0 || builder.sizes(node, "weight").size() != 2)
    builder.refuse(node, "expected a weight of two dimensions, got another one");
  const int64_t outputs = builder.at(weight).rows.at(1), inputs = builder.at(weight).width;
  if (builder.at(x).width != inputs)
    builder.refuse(node, "expected inputs of ", inputs, " numbers, got ", builder.at(x).width);
  const int given = node.arg("bias").is_none() ? -1 : builder.matrix(node, "bias");
  const bool in_product =
      given < 0 || (builder.at(given).home == Home::outside && is_row(builder, given, outputs));
  const int bias = in_product ? given : -1;
  const int transposed = builder.make({0, 1, inputs}, outputs);
  builder.emit({.op = Op::transpose, .out = transposed, .a = weight});
  const int y = builder.make(node, *node.output());
  builder.emit({.op = Op::forward_product, .out = y, .a = x, .b = transposed, .c = bias});
  builder.set_needs_gradient(
      y, builder.needs_gradient(x) || builder.needs_gradient(weight) || builder.needs_gradient(bias));
  builder.on_backward(y, [&builder, x, weight, bias](int gradient) {
    builder.contribute(weight, true, [&](int out, bool adds) {
      builder.emit({.op = Op::weight_product, .out = out, .a = gradient, .b = x, .adds = adds});
    });
    builder.contribute(bias, true, [&](int out, bool adds) {
      builder.emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
    });
    builder.contribute(x, true, [&](int out, bool adds) {
      builder.emit({.op = Op::input_product, .out = out, .a = gradient, .b = weight, .adds = adds});
    });
  });
  builder.set(*node.output(), in_product ? y : add_broadcast_bias(builder, node, y));
}

void add_layer_norm(Builder& builder, const graph::Node& node) {
  const int x = builder.padded(node, "input");
  const int weight = builder.outside(node, "weight"), bias = builder.outside(node, "bias");
  const auto shape = builder.literal(node, "normalized_shape").toIntVector();
  if (shape.size() != 1 || shape[0] != builder.at(x).width)
    builder.refuse(node, "expected layer_norm over the last dimension, got ", shape.size(), " dimensions");
  if (!is_row(builder, weight, shape[0]) || !is_row(builder, bias, shape[0]))
    builder.refuse(node, "expected a weight and a bias of ", shape[0], " numbers, got others");
  const auto epsilon = static_cast<float>(builder.number(node, "eps"));
  const int y = builder.make(node, *node.output());
  builder.emit({.op = Op::layer_norm, .out = y, .a = x, .b = weight, .c = bias, .p = {epsilon}});
  builder.set_needs_gradient(
      y, builder.needs_gradient(x) || builder.needs_gradient(weight) || builder.needs_gradient(bias));
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, x, weight, bias, epsilon](int gradient) {
    Instruction one{.op = Op::layer_norm_gradient, .a = gradient, .b = x, .c = weight, .p = {epsilon}};
    builder.contribute(weight, true, [&](int out, bool adds) {
      one.d = out;
      one.adds = adds;
    });
    builder.contribute(bias, true, [&](int out, bool adds) {
      one.e = out;
      one.second_adds = adds;
    });
    if (!builder.needs_gradient(x)) builder.emit(one);
    builder.contribute(x, false, [&](int out, bool) {
      one.out = out;
      builder.emit(one);
    });
  });
}

void add_dropout(Builder& builder, const graph::Node& node) {
  const double p = builder.number(node, "p");
  if (!builder.flag(node, "train") || p == 0)
    return builder.set(*node.output(), builder.matrix(node, "input"));
  if (!builder.draws())
    builder.refuse(
        node, "expected dropout with p = 0, in eval mode or with CompileOptions::dropout_seed, got p = ", p);
  if (!(p > 0 && p < 1)) builder.refuse(node, "expected 0 <= p < 1, got ", p);
  const int x = builder.padded(node, "input");
  const int y = builder.make(node, *node.output());
  Instruction one{.op = Op::dropout,
                  .out = y,
                  .a = x,
                  .p = {static_cast<float>(p), static_cast<float>(1 / (1 - p))},
                  .columns = builder.next_draw()};
  builder.emit(one);
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, x, one](int gradient) mutable {
    builder.contribute(x, false, [&](int out, bool) {
      one.out = out;
      one.a = gradient;
      builder.emit(one);
    });
  });
}

}  // namespace

std::vector<OpRow> layer_rules() {
  return {{"aten::linear", add_linear}, {"aten::layer_norm", add_layer_norm}, {"aten::dropout", add_dropout}};
}

}  // namespace ulp::train::compiled
