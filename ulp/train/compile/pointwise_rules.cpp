// Functions number by number, of one tensor and of two of the same sizes.
#include <cmath>
#include <limits>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

using kernels::Differentiable;

/// Whether the gradient of a function needs its input or its value.
bool needs_input(Differentiable function) {
  switch (function) {
    case Differentiable::affine:
    case Differentiable::divide:
    case Differentiable::relu:
    case Differentiable::tanh:
    case Differentiable::sigmoid:
    case Differentiable::exp:
    case Differentiable::sqrt:
      return false;
    default:
      return true;
  }
}
bool needs_value(Differentiable function) {
  return function == Differentiable::relu || function == Differentiable::tanh ||
         function == Differentiable::sigmoid || function == Differentiable::exp ||
         function == Differentiable::sqrt;
}

struct Numbers {
  float p[3] = {};
};

/// The product before, where an activation may be its end: nobody else reads that.
Instruction* product_before(Builder& builder, int x, bool relu) {
  Instruction* before = builder.last_writer(x);
  const bool free = before != nullptr &&
                    (before->op == Op::forward_product || before->op == Op::packed_product ||
                     (before->op == Op::convolution && relu)) &&
                    before->finish == kernels::ProductFinish::none && builder.read_once(x);
  return free ? before : nullptr;
}

void add_function(Builder& builder, const graph::Node& node, Differentiable function,
                  const Numbers& numbers = {}, size_t operand = 0) {
  const int x = builder.stored(node, node.args.at(operand));
  const bool counts = function == Differentiable::clamp && builder.image_of(x) == nullptr;
  const int y =
      counts ? builder.make_of_any_type(node, *node.output()) : builder.make_as(node, *node.output(), x);
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(*node.output(), y);
  const bool relu6 = function == Differentiable::hardtanh && numbers.p[0] == 0 && numbers.p[1] == 6;
  if (function == Differentiable::relu && builder.end_norm(x, y, kernels::NormFinish::relu)) return;
  if (relu6 && builder.end_norm(x, y, kernels::NormFinish::relu6)) return;
  Instruction value{.op = Op::value, .out = y, .a = x, .function = function};
  Instruction gradient{.op = Op::gradient, .function = function};
  std::copy_n(numbers.p, 3, value.p);
  std::copy_n(numbers.p, 3, gradient.p);
  if (needs_input(function)) gradient.b = x;
  if (needs_value(function)) gradient.c = y;
  const bool leaky = function == Differentiable::leaky_relu && numbers.p[0] > 0 && numbers.p[0] <= 1;
  Instruction* product =
      leaky || function == Differentiable::relu ? product_before(builder, x, !leaky) : nullptr;
  if (product != nullptr) {
    product->out = y;
    product->finish = leaky ? kernels::ProductFinish::leaky_relu : kernels::ProductFinish::relu;
    product->p[0] = numbers.p[0];
    if (leaky) gradient.b = y;  // of the same sign as x
  } else {
    builder.emit(value);
  }
  builder.on_backward(y, [&builder, x, gradient](int from) {
    builder.contribute(x, false, [&](int out, bool) {
      Instruction one = gradient;
      one.out = out;
      one.a = from;
      builder.emit(one);
    });
  });
}

template <Differentiable kFunction>
void add_plain(Builder& builder, const graph::Node& node) {
  add_function(builder, node, kFunction);
}

float narrow(double value) {
  return static_cast<float>(value);
}

void add_leaky_relu(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::leaky_relu, {{narrow(builder.number(node, "negative_slope"))}});
}

void add_gelu(Builder& builder, const graph::Node& node) {
  const bool by_tanh = builder.literal(node, "approximate").toStringRef() == "tanh";
  add_function(builder, node, by_tanh ? Differentiable::gelu_tanh : Differentiable::gelu);
}

void add_elu(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::elu,
               {{narrow(builder.number(node, "alpha")), narrow(builder.number(node, "scale")),
                 narrow(builder.number(node, "input_scale"))}});
}

void add_softplus(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::softplus,
               {{narrow(builder.number(node, "beta")), narrow(builder.number(node, "threshold"))}});
}

void add_clamp(Builder& builder, const graph::Node& node) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto bound = [&](const char* name, float none) {
    return builder.literal(node, name).isNone() ? none : narrow(builder.number(node, name));
  };
  const float low = bound("min", -infinity), high = bound("max", infinity);
  if (!(low <= high)) builder.refuse(node, "expected min <= max, got ", low, " and ", high);
  add_function(builder, node, Differentiable::clamp, {{low, high}});
}

/// clamp_min and clamp_max.
template <bool kLow>
void add_bound(Builder& builder, const graph::Node& node) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float bound = narrow(builder.number(node, kLow ? "min" : "max"));
  add_function(builder, node, Differentiable::clamp, {{kLow ? bound : -infinity, kLow ? infinity : bound}});
}

void add_hardtanh(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::hardtanh,
               {{narrow(builder.number(node, "min_val")), narrow(builder.number(node, "max_val"))}});
}

void add_relu6(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::hardtanh, {{0.0F, 6.0F}});
}

void add_power(Builder& builder, const graph::Node& node) {
  const double exponent = builder.number(node, "exponent");
  if (exponent != 2) builder.refuse(node, "expected an exponent of 2, got ", exponent);
  add_function(builder, node, Differentiable::square);
}

void add_negative(Builder& builder, const graph::Node& node) {
  add_function(builder, node, Differentiable::affine, {{-1.0F, 0.0F}});
}

struct Two {
  int a, b, y;
};

/// Both operands and the result, all of its sizes; as images where one is, and the other one has its sizes or
/// is a number for each channel.
Two two_operands(Builder& builder, const graph::Node& node) {
  const bool images = builder.takes_images(node, "self") && builder.takes_images(node, "other");
  const int a =
      images ? builder.broadcast_pixels(node, "self") : builder.broadcast(node, "self", *node.output());
  const int b =
      images ? builder.broadcast_pixels(node, "other") : builder.broadcast(node, "other", *node.output());
  const int y = builder.make_as(node, *node.output(), a);
  builder.set_needs_gradient(y, builder.needs_gradient(a) || builder.needs_gradient(b));
  builder.set(*node.output(), y);
  return {a, b, y};
}

/// a + scale b, b being a tensor or a number.
void add_sum_of(Builder& builder, const graph::Node& node, double sign) {
  const float scale = narrow(sign * builder.number(node, "alpha"));
  if (const auto number = builder.constant(node, "other"))
    return add_function(builder, node, Differentiable::affine, {{1.0F, scale * narrow(*number)}});
  if (const auto number = builder.constant(node, "self")) {
    return add_function(builder, node, Differentiable::affine, {{scale, narrow(*number)}}, 1);
  }
  const auto [a, b, y] = two_operands(builder, node);
  if (scale != 1.0F || !builder.end_norm_by_sum(a, b, y))
    builder.emit({.op = Op::add_scaled, .out = y, .a = a, .b = b, .p = {scale}});
  builder.on_backward(y, [&builder, a = a, b = b, scale](int gradient) {
    builder.pass_on(a, gradient);
    builder.pass_on(b, gradient, scale);
  });
}

void add_sum(Builder& builder, const graph::Node& node) {
  add_sum_of(builder, node, 1);
}
void add_difference(Builder& builder, const graph::Node& node) {
  add_sum_of(builder, node, -1);
}

/// other - alpha self.
void add_difference_from(Builder& builder, const graph::Node& node) {
  const auto number = builder.constant(node, "other");
  if (!number) builder.refuse(node, "expected a number to subtract from, got a tensor");
  add_function(builder, node, Differentiable::affine,
               {{narrow(-builder.number(node, "alpha")), narrow(*number)}});
}

void add_product(Builder& builder, const graph::Node& node) {
  if (const auto number = builder.constant(node, "other"))
    return add_function(builder, node, Differentiable::affine, {{narrow(*number), 0.0F}});
  if (builder.constant(node, "self"))
    builder.refuse(node, "expected a tensor before a number, got a constant");
  const auto [a, b, y] = two_operands(builder, node);
  builder.emit({.op = Op::multiply, .out = y, .a = a, .b = b});
  builder.on_backward(y, [&builder, a = a, b = b](int gradient) {
    builder.contribute(a, false, [&](int out, bool) {
      builder.emit({.op = Op::multiply, .out = out, .a = gradient, .b = b});
    });
    builder.contribute(b, false, [&](int out, bool) {
      builder.emit({.op = Op::multiply, .out = out, .a = gradient, .b = a});
    });
  });
}

void add_quotient(Builder& builder, const graph::Node& node) {
  if (const auto number = builder.constant(node, "other"))
    return add_function(builder, node, Differentiable::divide, {{narrow(*number)}});
  if (builder.constant(node, "self"))
    builder.refuse(node, "expected a tensor before a number, got a constant");
  const auto [a, b, y] = two_operands(builder, node);
  builder.emit({.op = Op::quotient, .out = y, .a = a, .b = b});
  builder.on_backward(y, [&builder, a = a, b = b, y = y](int gradient) {
    builder.contribute(a, false, [&](int out, bool) {
      builder.emit({.op = Op::quotient, .out = out, .a = gradient, .b = b});
    });
    builder.contribute(b, false, [&](int out, bool) {  // -g (y / b): g / b may be infinite where y is 0
      builder.emit({.op = Op::quotient, .out = out, .a = y, .b = b});
      builder.emit({.op = Op::multiply, .out = out, .a = out, .b = gradient});
      builder.emit({.op = Op::value, .out = out, .a = out, .function = Differentiable::affine, .p = {-1.0F}});
    });
  });
}

template <int kSign>
void add_choice(Builder& builder, const graph::Node& node) {
  const auto [a, b, y] = two_operands(builder, node);
  builder.emit({.op = Op::select, .out = y, .a = a, .b = b, .p = {kSign}});
  builder.on_backward(y, [&builder, a = a, b = b](int gradient) {
    builder.contribute(a, false, [&](int out, bool) {
      builder.emit({.op = Op::select_gradient, .out = out, .a = gradient, .b = a, .c = b, .p = {kSign}});
    });
    builder.contribute(b, false, [&](int out, bool) {
      builder.emit({.op = Op::select_gradient, .out = out, .a = gradient, .b = b, .c = a, .p = {kSign}});
    });
  });
}

/// out = a where the condition holds, else b; a number in the place of either.
void add_choice(Builder& builder, const graph::Node& node, const char* condition, std::string_view yes,
                std::string_view no) {
  const graph::Value& value = *node.output();
  const int c = builder.broadcast(node, condition, value);
  Instruction one{.op = Op::choose, .c = c};
  const auto operand = [&](std::string_view argument, float& number) {
    if (const auto given = builder.constant(node, argument)) {
      number = narrow(*given);
      return -1;
    }
    return builder.broadcast(node, argument, value);
  };
  const int a = operand(yes, one.p[0]), b = operand(no, one.p[1]);
  one.out = builder.make(node, value);
  one.a = a;
  one.b = b;
  builder.emit(one);
  builder.set_needs_gradient(one.out, builder.needs_gradient(a) || builder.needs_gradient(b));
  builder.set(value, one.out);
  builder.on_backward(one.out, [&builder, a, b, c](int gradient) {
    builder.contribute(a, false, [&](int out, bool) {
      builder.emit({.op = Op::choose, .out = out, .a = gradient, .c = c});
    });
    builder.contribute(b, false, [&](int out, bool) {
      builder.emit({.op = Op::choose, .out = out, .b = gradient, .c = c});
    });
  });
}

void add_not(Builder& builder, const graph::Node& node) {
  const int x = builder.padded(node, "self");
  const int y = builder.make_of_any_type(node, *node.output());
  builder.emit({.op = Op::choose, .out = y, .c = x, .p = {0.0F, 1.0F}});
  builder.set(*node.output(), y);
}

void add_where(Builder& builder, const graph::Node& node) {
  add_choice(builder, node, "condition", "self", "other");
}

void add_masked_fill(Builder& builder, const graph::Node& node) {
  add_choice(builder, node, "mask", "value", "self");
}

}  // namespace

std::vector<OpRow> pointwise_rules() {
  return {{"aten::relu", add_plain<Differentiable::relu>},
          {"aten::leaky_relu", add_leaky_relu},
          {"aten::tanh", add_plain<Differentiable::tanh>},
          {"aten::sigmoid", add_plain<Differentiable::sigmoid>},
          {"aten::gelu", add_gelu},
          {"aten::silu", add_plain<Differentiable::silu>},
          {"aten::elu", add_elu},
          {"aten::softplus", add_softplus},
          {"aten::exp", add_plain<Differentiable::exp>},
          {"aten::log", add_plain<Differentiable::log>},
          {"aten::square", add_plain<Differentiable::square>},
          {"aten::pow.Tensor_Scalar", add_power},
          {"aten::abs", add_plain<Differentiable::abs>},
          {"aten::neg", add_negative},
          {"aten::clamp", add_clamp},
          {"aten::clamp_min", add_bound<true>},
          {"aten::clamp_max", add_bound<false>},
          {"aten::hardtanh", add_hardtanh},
          {"aten::relu6", add_relu6},
          {"aten::hardsigmoid", add_plain<Differentiable::hardsigmoid>},
          {"aten::hardswish", add_plain<Differentiable::hardswish>},
          {"aten::sqrt", add_plain<Differentiable::sqrt>},
          {"aten::where.self", add_where},
          {"aten::logical_not", add_not},
          {"aten::masked_fill.Scalar", add_masked_fill},
          {"aten::add.Tensor", add_sum},
          {"aten::add.Scalar", add_sum},
          {"aten::sub.Tensor", add_difference},
          {"aten::sub.Scalar", add_difference},
          {"aten::rsub.Scalar", add_difference_from},
          {"aten::mul.Tensor", add_product},
          {"aten::mul.Scalar", add_product},
          {"aten::div.Tensor", add_quotient},
          {"aten::div.Scalar", add_quotient},
          {"aten::minimum", add_choice<1>},
          {"aten::min.other", add_choice<1>},
          {"aten::maximum", add_choice<-1>},
          {"aten::max.other", add_choice<-1>}};
}

}  // namespace ulp::train::compiled
