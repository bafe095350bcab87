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

/// The argument is the transpose of a parameter or buffer, of two dimensions: gives that; -1 for other ones.
int transposed_parameter(Builder& builder, const graph::Node& node, std::string_view argument) {
  const graph::Node& producer = *node.arg(argument).value->producer;
  if (producer.target() != "aten::t" || producer.no_grad) return -1;
  const int found = builder.matrix(producer, "self");
  return builder.at(found).home == Home::outside && builder.sizes(producer, "self").size() == 2 ? found : -1;
}

void add_linear(Builder& builder, const graph::Node& node) {
  const int x = builder.padded(node, "input");
  // As it is stored: [outputs, inputs], or that transposed.
  const int stored = transposed_parameter(builder, node, "weight");
  const bool by_inputs = stored >= 0;
  const int weight = by_inputs ? stored : builder.outside(node, "weight");
  if (weight < 0 || builder.sizes(node, "weight").size() != 2)
    builder.refuse(node, "expected a weight of two dimensions, got another one");
  const int64_t rows = builder.at(weight).rows.at(1), columns = builder.at(weight).width;
  const int64_t outputs = by_inputs ? columns : rows, inputs = by_inputs ? rows : columns;
  if (builder.at(x).width != inputs)
    builder.refuse(node, "expected inputs of ", inputs, " numbers, got ", builder.at(x).width);
  const int given = node.arg("bias").is_none() ? -1 : builder.matrix(node, "bias");
  const bool in_product =
      given < 0 || (builder.at(given).home == Home::outside && is_row(builder, given, outputs));
  const int bias = in_product ? given : -1;
  const int y = builder.make(node, *node.output());
  const bool packs = builder.packs_products(inputs * outputs);
  if (packs && !by_inputs && !node.no_grad && builder.needs_gradient(weight)) builder.keep_packed(x);
  builder.emit_product({.out = y, .a = x, .b = weight, .bias = bias, .right_transposed = !by_inputs}, packs);
  builder.set_needs_gradient(
      y, builder.needs_gradient(x) || builder.needs_gradient(weight) || builder.needs_gradient(bias));
  builder.on_backward(y, [&builder, x, weight, bias, by_inputs, packs](int gradient) {
    builder.contribute(weight, true, [&](int out, bool adds) {
      builder.emit_product({.out = out,
                            .a = by_inputs ? x : gradient,
                            .b = by_inputs ? gradient : x,
                            .left_transposed = true,
                            .adds = adds,
                            .plain = Op::weight_product},
                           packs);
    });
    builder.contribute(bias, true, [&](int out, bool adds) {
      builder.emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
    });
    builder.contribute(x, true, [&](int out, bool adds) {
      builder.emit_product({.out = out,
                            .a = gradient,
                            .b = weight,
                            .right_transposed = by_inputs,
                            .adds = adds,
                            .plain = Op::input_product},
                           packs);
    });
  });
  builder.set(*node.output(), in_product ? y : add_broadcast_bias(builder, node, y));
}

/// layer_norm or rms_norm over the last dimension.
template <bool kCentered>
void add_norm(Builder& builder, const graph::Node& node) {
  const int x = builder.padded(node, "input");
  const int weight = builder.outside(node, "weight");
  int bias = -1;
  if constexpr (kCentered) bias = builder.outside(node, "bias");
  const auto shape = builder.literal(node, "normalized_shape").toIntVector();
  if (shape.size() != 1 || shape[0] != builder.at(x).width)
    builder.refuse(node, "expected a norm over the last dimension, got ", shape.size(), " dimensions");
  if (!is_row(builder, weight, shape[0]) || !is_row(builder, bias, shape[0]))
    builder.refuse(node, "expected a weight and a bias of ", shape[0], " numbers, got others");
  // Without one LibTorch takes that of the type.
  const bool given = kCentered || !builder.literal(node, "eps").isNone();
  const float epsilon = given ? static_cast<float>(builder.number(node, "eps")) : 0x1p-23F;
  const int y = builder.make(node, *node.output());
  builder.emit({.op = Op::layer_norm,
                .out = y,
                .a = x,
                .b = weight,
                .c = bias,
                .p = {epsilon},
                .centered = kCentered});
  builder.set_needs_gradient(
      y, builder.needs_gradient(x) || builder.needs_gradient(weight) || builder.needs_gradient(bias));
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, x, weight, bias, epsilon](int gradient) {
    Instruction one{.op = Op::layer_norm_gradient,
                    .a = gradient,
                    .b = x,
                    .c = weight,
                    .p = {epsilon},
                    .centered = kCentered};
    builder.contribute(weight, true, [&](int out, bool adds) {
      one.d = out;
      one.adds = adds;
    });
    // One parameter for both is added to when all sums are there, in the same order on any number of threads.
    const bool shared = weight >= 0 && weight == bias;
    if (shared) {
      if (builder.needs_gradient(bias)) one.e = builder.make({}, builder.at(bias).width);
    } else {
      builder.contribute(bias, true, [&](int out, bool adds) {
        one.e = out;
        one.second_adds = adds;
      });
    }
    if (!builder.needs_gradient(x)) builder.emit(one);
    builder.contribute(x, false, [&](int out, bool) {
      one.out = out;
      builder.emit(one);
    });
    if (shared) builder.pass_on(bias, one.e);
  });
}

void add_dropout(Builder& builder, const graph::Node& node) {
  const double p = builder.number(node, "p");
  if (!builder.flag(node, "train") || p == 0)
    return builder.set(*node.output(), builder.in_memory(node, "input"));
  if (!builder.draws())
    builder.refuse(
        node, "expected dropout with p = 0, in eval mode or with CompileOptions::dropout_seed, got p = ", p);
  if (!(p > 0 && p < 1)) builder.refuse(node, "expected 0 <= p < 1, got ", p);
  const int x = builder.stored(node, "input");
  const int y = builder.make_as(node, *node.output(), x);
  builder.emit_dropout(x, y, p);
  builder.set(*node.output(), y);
}

}  // namespace

void Builder::emit_dropout(int x, int y, double p) {
  Instruction one{.op = Op::dropout,
                  .out = y,
                  .a = x,
                  .p = {static_cast<float>(p), static_cast<float>(1 / (1 - p))},
                  .columns = next_draw()};
  emit(one);
  set_needs_gradient(y, needs_gradient(x));
  on_backward(y, [this, x, one](int gradient) mutable {
    contribute(x, false, [&](int out, bool) {
      one.out = out;
      one.a = gradient;
      emit(one);
    });
  });
}

bool Builder::packs_products(int64_t weights) const {
  constexpr int64_t kManyWeights = 65536;  // small ones are read as they lie: a step has few samples for them
  return bf16() || weights >= kManyWeights;
}

void Builder::emit_product(const Product& of, bool packs) {
  if (!packs) {
    const int right = of.right_transposed ? transposed(of.b) : of.b;
    emit({.op = of.plain, .out = of.out, .a = of.a, .b = right, .c = of.bias, .adds = of.adds});
    return;
  }
  const int right = packed(of.b, of.right_transposed);
  emit({.op = Op::packed_product,
        .out = of.out,
        .a = of.a,
        .b = right,
        .c = of.bias,
        .adds = of.adds,
        .transposed = of.left_transposed});
}

int Builder::packed(int b, bool transposed) {
  constexpr int64_t kPanelColumns = 32;  // of the widest panel
  const auto cached = packed_of_.find({b, transposed});
  if (cached != packed_of_.end()) return cached->second;
  const PlanMatrix of = at(b);
  const int64_t columns = transposed ? of.rows.at(1) : of.width;
  RowCount inner = transposed ? RowCount{0, 1, of.width} : of.rows;
  int64_t width = (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  if (word_numbers_ == 2) {  // half as many words, of an inner size that may be odd
    inner.offset += 1;
    width /= 2;
  }
  const int made = make(inner, width);
  emit({.op = Op::pack, .out = made, .a = b, .transposed = transposed});
  return made;
}

int Builder::transposed(int weight) {
  const int made = make({0, 1, at(weight).width}, at(weight).rows.at(1));
  emit({.op = Op::transpose, .out = made, .a = weight});
  return made;
}

std::vector<OpRow> layer_rules() {
  return {{"aten::linear", add_linear},
          {"aten::layer_norm", add_norm<true>},
          {"aten::rms_norm", add_norm<false>},
          {"aten::dropout", add_dropout}};
}

}  // namespace ulp::train::compiled
