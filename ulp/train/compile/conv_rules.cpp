// Convolutions of images, and transposed ones, which are gradients of convolutions.
#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

std::array<int64_t, 2> two_numbers(Builder& builder, const graph::Node& node, std::string_view argument) {
  const std::vector<int64_t> given = builder.literal(node, argument).toIntVector();
  if (given.empty() || given.size() > 2)
    builder.refuse(node, "expected one number or two for '", argument, "', got ", given.size());
  return {given.front(), given.back()};
}

namespace {

using kernels::StepConv;

/// Operands of a convolution; `x` and `y` are those of the convolution that is planned, which a transposed
/// one reads the other way round.
struct ConvOperands {
  int x = -1, y = -1, weight = -1, bias = -1, shape = -1;
  int packed = -1;     ///< weights of the forward product
  bool words = false;  ///< products forward and of the input's gradient are of words of bf16
  bool transposed = false;
};

/// A matrix for packed weights.
int make_packed(Builder& builder, const StepConv& conv, bool reversed) {
  if (conv.depthwise()) return builder.make({0, 1, conv.taps()}, conv.out_channels);
  constexpr int64_t kWidth = 16;
  const int64_t floats =
      reversed ? kernels::packed_conv_input_floats(conv) : kernels::packed_conv_floats(conv);
  return builder.make({0, 1, floats / kWidth}, kWidth);
}

int pack_weights(Builder& builder, const ConvOperands& of, bool reversed) {
  const StepConv conv = builder.planned_conv(of.shape).conv;
  const int packed = make_packed(builder, conv, reversed);
  builder.emit({.op = reversed ? Op::pack_reversed : Op::pack_weights,
                .out = packed,
                .a = of.weight,
                .shape = of.shape});
  return packed;
}

/// Sums for packed weights become the gradient of the weights.
void add_weight_gradient(Builder& builder, const ConvOperands& of, int products) {
  if (builder.is_attribute(of.weight)) {
    return builder.contribute(of.weight, true, [&](int out, bool adds) {
      builder.emit({.op = Op::unpack_weights, .out = out, .a = products, .adds = adds, .shape = of.shape});
    });
  }
  // A masked copy has its gradient in rows of the arena.
  const PlanMatrix weight = builder.at(of.weight);
  const int dense = builder.make(RowCount{}, weight.rows.at(1) * weight.width);
  builder.emit({.op = Op::unpack_weights, .out = dense, .a = products, .shape = of.shape});
  builder.contribute(of.weight, false,
                     [&](int out, bool) { builder.emit({.op = Op::reshape, .out = out, .a = dense}); });
}

/// The sum over channels in words of bf16.
int64_t word_count(const kernels::ConvWords& words) {
  return (words.channels + words.numbers - 1) / words.numbers;
}

/// The forward product in words.
void add_word_product(Builder& builder, const ConvOperands& of, StepConv conv) {
  const kernels::ConvWords words = builder.conv_words(conv.in_channels);
  conv.in_channels = word_count(words);
  ConvOperands narrow = of;
  narrow.shape = builder.add_conv(conv, of.weight, words.channels, words);
  const int x = builder.words_of(of.x), packed = pack_weights(builder, narrow, false);
  builder.emit(
      {.op = Op::convolution, .out = of.y, .a = x, .b = packed, .c = of.bias, .shape = narrow.shape});
}

/// The gradient of the input in words.
void add_word_gradient(Builder& builder, const ConvOperands& of, StepConv conv, int gradient) {
  const kernels::ConvWords words = builder.conv_words(conv.out_channels);
  conv.out_channels = word_count(words);
  ConvOperands narrow = of;
  narrow.shape = builder.add_conv(conv, of.weight, conv.in_channels, words);
  const int packed = pack_weights(builder, narrow, true), g = builder.words_of(gradient);
  builder.contribute(of.x, true, [&](int out, bool adds) {
    builder.emit(
        {.op = Op::convolution_input, .out = out, .a = g, .b = packed, .adds = adds, .shape = narrow.shape});
  });
}

/// The gradients of a convolution: `gradient` is that of its result.
void add_conv_gradients(Builder& builder, const ConvOperands& of, int gradient) {
  const StepConv conv = builder.planned_conv(of.shape).conv;
  const int input = of.transposed ? of.y : of.x;  // of the layer
  if (builder.needs_gradient(of.weight)) {
    const int products = make_packed(builder, conv, false);
    builder.emit({.op = Op::convolution_weight,
                  .out = products,
                  .a = of.transposed ? gradient : of.x,
                  .b = of.transposed ? of.y : gradient,
                  .shape = of.shape});
    add_weight_gradient(builder, of, products);
  }
  builder.contribute(of.bias, true, [&](int out, bool adds) {
    builder.emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
  });
  if (!builder.needs_gradient(input)) return;
  if (of.words) return add_word_gradient(builder, of, conv, gradient);
  const int packed = conv.depthwise() ? of.packed : pack_weights(builder, of, !of.transposed);
  builder.contribute(input, true, [&](int out, bool adds) {
    builder.emit({.op = of.transposed ? Op::convolution : Op::convolution_input,
                  .out = out,
                  .a = gradient,
                  .b = packed,
                  .adds = adds,
                  .shape = of.shape});
  });
}

/// The numbers of a call and the sizes of both sides; `in` is the side that a convolution reads.
StepConv conv_of(Builder& builder, const graph::Node& node, int in, int out) {
  const auto stride = two_numbers(builder, node, "stride"), pad = two_numbers(builder, node, "padding"),
             dilation = two_numbers(builder, node, "dilation");
  const ImageSize from = *builder.image_of(in), to = *builder.image_of(out);
  const auto weight = builder.sizes(node, "weight");
  StepConv conv;
  conv.in_height = from.height;
  conv.in_width = from.width;
  conv.in_channels = builder.at(in).width;
  conv.out_height = to.height;
  conv.out_width = to.width;
  conv.out_channels = builder.at(out).width;
  conv.kernel_height = weight[2].offset;
  conv.kernel_width = weight[3].offset;
  conv.stride_height = stride[0];
  conv.stride_width = stride[1];
  conv.pad_height = pad[0];
  conv.pad_width = pad[1];
  conv.dilation_height = dilation[0];
  conv.dilation_width = dilation[1];
  conv.groups = static_cast<int64_t>(builder.number(node, "groups"));
  return conv;
}

/// LibTorch's own contract, looked at again.
void check_weights(Builder& builder, const graph::Node& node, const StepConv& conv) {
  const auto weight = builder.sizes(node, "weight");
  const bool fits = conv.groups > 0 && conv.in_channels % conv.groups == 0 &&
                    conv.out_channels % conv.groups == 0 && weight[0].offset == conv.out_channels &&
                    weight[1].offset == conv.group_inputs();
  if (!fits) builder.refuse(node, "expected weights that fit the channels, got others");
}

/// A layer whose windows are pixels: a linear layer of them.
bool is_pointwise(const StepConv& conv) {
  return conv.taps() == 1 && conv.stride_height == 1 && conv.stride_width == 1 && conv.pad_height == 0 &&
         conv.pad_width == 0 && conv.groups == 1;
}

/// A pointwise convolution as products of packed sides.
void add_pointwise(Builder& builder, const StepConv& conv, const ConvOperands& of) {
  const RowCount outputs{0, 1, conv.out_channels};
  const int x = of.x, weight = builder.make_alias(of.weight, outputs, conv.in_channels);
  builder.emit_product({.out = of.y, .a = x, .b = weight, .bias = of.bias, .right_transposed = true}, true);
  builder.on_backward(of.y, [&builder, of, x, weight, outputs, inputs = conv.in_channels](int gradient) {
    const auto product = [&](int out, bool adds) {
      builder.emit_product({.out = out, .a = gradient, .b = x, .left_transposed = true, .adds = adds}, true);
    };
    if (builder.is_attribute(of.weight)) {
      builder.contribute(of.weight, true, [&](int out, bool adds) {
        product(builder.make_alias(out, outputs, inputs), adds);
      });
    } else {  // a masked copy has its gradient in rows of the arena
      const int dense = builder.make(outputs, inputs);
      product(dense, false);
      builder.contribute(of.weight, false,
                         [&](int out, bool) { builder.emit({.op = Op::reshape, .out = out, .a = dense}); });
    }
    builder.contribute(of.bias, true, [&](int out, bool adds) {
      builder.emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
    });
    builder.contribute(x, true, [&](int out, bool adds) {
      builder.emit_product({.out = out, .a = gradient, .b = weight, .adds = adds}, true);
    });
  });
}

template <bool kTransposed>
void add_convolution(Builder& builder, const graph::Node& node) {
  ConvOperands of;
  of.transposed = kTransposed;
  const int input = builder.pixels(node, "input");
  of.weight = builder.conv_weight(node, "weight");
  const int output = builder.make_as(node, *node.output(), input);
  of.x = kTransposed ? output : input;
  of.y = kTransposed ? input : output;
  const StepConv conv = conv_of(builder, node, of.x, of.y);
  check_weights(builder, node, conv);
  of.bias = builder.outside(node, "bias");
  if (of.bias >= 0 &&
      !(builder.at(of.bias).rows == RowCount{} && builder.at(of.bias).width == builder.at(output).width))
    builder.refuse(node, "expected a bias of ", builder.at(output).width, " numbers, got others");
  builder.set_needs_gradient(output, builder.needs_gradient(input) || builder.needs_gradient(of.weight) ||
                                         builder.needs_gradient(of.bias));
  builder.set(*node.output(), output);
  if (!kTransposed && is_pointwise(conv) && (builder.bf16() || !kernels::conv_fits(conv)))
    return add_pointwise(builder, conv, of);
  if (!kernels::conv_fits(conv)) {
    builder.refuse(node, "expected windows of at most 32768 numbers and 256 taps, forward and backward, got ",
                   conv.kernel_height, " by ", conv.kernel_width, " taps of ", conv.group_inputs(), " and ",
                   conv.group_outputs(), " channels");
  }
  of.shape = builder.add_conv(conv, of.weight, conv.group_inputs());
  of.words = !kTransposed && builder.bf16() && conv.groups == 1;
  if (of.words) {
    add_word_product(builder, of, conv);
  } else {
    of.packed = pack_weights(builder, of, kTransposed);
    builder.emit({.op = kTransposed ? Op::convolution_input : Op::convolution,
                  .out = output,
                  .a = input,
                  .b = of.packed,
                  .c = of.bias,
                  .shape = of.shape});
  }
  builder.on_backward(output, [&builder, of](int gradient) { add_conv_gradients(builder, of, gradient); });
}

}  // namespace

std::vector<OpRow> conv_rules() {
  return {{"aten::conv2d", add_convolution<false>}, {"aten::conv_transpose2d.input", add_convolution<true>}};
}

}  // namespace ulp::train::compiled
