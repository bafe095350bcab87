// Functions of one tensor, element by element: activations above all.
#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

// The results that the format gives codes of these.
const Steps kUnitSteps{{1.0F / 256}, {-128}, 0};
const Steps kTanhSteps{{1.0F / 128}, {0}, 0};

/// Ops whose form is one operator without options. `integer`: from codes to codes, too, of the steps `fixed` where it has any.
struct Same {
  std::string_view op;
  Operation operation;
  bool integer = false;
  const Steps* fixed = nullptr;
};
constexpr Same kSame[] = {{"aten::relu", Operation::RELU, true},
                          {"aten::relu6", Operation::RELU6, true},
                          {"aten::sigmoid", Operation::LOGISTIC, true, &kUnitSteps},
                          {"aten::tanh", Operation::TANH, true, &kTanhSteps},
                          {"aten::hardswish", Operation::HARD_SWISH, true},
                          {"aten::exp", Operation::EXP},
                          {"aten::log", Operation::LOG},
                          {"aten::sqrt", Operation::SQRT},
                          {"aten::rsqrt", Operation::RSQRT},
                          {"aten::abs", Operation::ABS},
                          {"aten::neg", Operation::NEG},
                          {"aten::floor", Operation::FLOOR},
                          {"aten::ceil", Operation::CEIL},
                          {"aten::sin", Operation::SIN},
                          {"aten::cos", Operation::COS},
                          {"aten::sign", Operation::SIGN},
                          {"aten::sgn", Operation::SIGN},
                          {"aten::logical_not", Operation::LOGICAL_NOT}};

/// One operator on the first argument, in the layout that it has.
void unary(Builder& builder, const Node& node, Operation op, bool integers, const Steps* fixed = nullptr,
           Options options = {}) {
  const Value& x = *node.args.at(0).value;
  Ending ending = builder.ending_of(node, integers && builder.has_codes(&x));
  // Such operators take no clamp behind them, and the steps may be fixed.
  const bool apart =
      ending.fused != schema::Activation::NONE || (fixed != nullptr && !(ending.steps == *fixed));
  if (!ending.integer || apart) ending = {.result = node.output()};
  const Layout layout = builder.layout_of(&x);
  Index in = builder.tensor_of(node, &x, layout, ending.integer);
  // exp of whole numbers is a float, say.
  if (!ending.integer) in = builder.cast(node, in, exchange::type_of(*node.output()));
  if (layout == Layout::flattened) builder.flatten(ending.result, builder.flattened_channels(&x));
  builder.emit(op, {in}, {builder.result(node, ending, layout)}, std::move(options));
}

bool is_float(const Node& node) {
  return at::isFloatingType(exchange::type_of(*node.output()));
}

/// What is done with whole numbers in two operators: between two bounds, of which one may be missing, or the larger one of x and -x.
void between_bounds(Builder& builder, const Node& node, const Bounds& bounds) {
  const Value& x = *node.args.at(0).value;
  const at::ScalarType type = exchange::type_of(*node.output());
  const Layout layout = builder.layout_of(&x);
  if (!bounds.low && !bounds.high && exchange::type_of(x) == type) return builder.share(node.output(), &x);
  const Index in = builder.cast(node, builder.numbers(node, &x, layout), type);
  const Index made = builder.make_numbers(node, node.output(), layout);
  const auto bound = [&](const c10::Scalar& value) { return builder.number(node, value, type); };
  if (!bounds.low) return builder.emit(Operation::MINIMUM, {in, bound(bounds.high.value_or(0))}, {made});
  const Index low = bounds.high ? builder.like(made, builder.shape_of_tensor(made)) : made;
  builder.emit(Operation::MAXIMUM, {in, bound(*bounds.low)}, {low});
  if (bounds.high) builder.emit(Operation::MINIMUM, {low, bound(*bounds.high)}, {made});
}

void larger_of_both_signs(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  const Index in = builder.numbers(node, &x, layout);
  const Index made = builder.make_numbers(node, node.output(), layout);
  const Index negative = builder.like(made, builder.shape_of_tensor(made));
  builder.emit(Operation::NEG, {in}, {negative});
  builder.emit(Operation::MAXIMUM, {in, negative}, {made});
}

/// LiteRT has these operators of floats alone, or not of int64.
bool of_whole_numbers(Builder& builder, const Node& node) {
  if (is_float(node)) return false;
  if (node.is("aten::floor") || node.is("aten::ceil") || node.is("aten::round")) {
    builder.share(node.output(), node.args.at(0).value);
  } else if (node.is("aten::relu") || node.is("aten::relu6")) {
    between_bounds(builder, node, bounds_of(node));
  } else if (node.is("aten::sign") || node.is("aten::sgn")) {
    between_bounds(builder, node, {-1, 1});
  } else if (node.is("aten::abs") && exchange::type_of(*node.output()) == at::kLong) {
    larger_of_both_signs(builder, node);
  } else {
    return false;
  }
  return true;
}

void same(Builder& builder, const Node& node) {
  if (of_whole_numbers(builder, node)) return;
  for (const auto& [op, operation, integer, fixed] : kSame) {
    if (node.is(op)) return unary(builder, node, operation, integer, fixed);
  }
}

/// A part of the node's result, of its sizes, in this layout.
Index part(Builder& builder, const Node& node, Layout layout) {
  return builder.between(node, builder.shape_of(node, *node.output(), layout));
}

void silu(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  const Index in = builder.numbers(node, &x, layout), gate = part(builder, node, layout);
  builder.emit(Operation::LOGISTIC, {in}, {gate});
  builder.emit(Operation::MUL, {in, gate}, {builder.make_numbers(node, node.output(), layout)},
               options_of(schema::MulOptionsT()));
}

void round(Builder& builder, const Node& node) {
  if (of_whole_numbers(builder, node)) return;
  const Decimals decimals = decimals_of(node);
  if (decimals.power == 1) return unary(builder, node, Operation::ROUND, /*integers=*/false);
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  const Index power = builder.scalar(decimals.power), in = builder.numbers(node, &x, layout);
  const Index scaled = part(builder, node, layout), rounded = part(builder, node, layout);
  const auto scale = [&](bool multiply, Index from, Index to) {
    builder.emit(multiply ? Operation::MUL : Operation::DIV, {from, power}, {to},
                 multiply ? options_of(schema::MulOptionsT()) : options_of(schema::DivOptionsT()));
  };
  scale(decimals.multiply, in, scaled);
  builder.emit(Operation::ROUND, {scaled}, {rounded});
  scale(!decimals.multiply, rounded, builder.make_numbers(node, node.output(), layout));
}

/// relu6(x + 3) / 6.
void hardsigmoid(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  const Index in = builder.numbers(node, &x, layout), clamped = part(builder, node, layout);
  schema::AddOptionsT clamp;
  clamp.fused_activation_function = schema::Activation::RELU6;
  builder.emit(Operation::ADD, {in, builder.scalar(3)}, {clamped}, options_of(std::move(clamp)));
  builder.emit(Operation::MUL, {clamped, builder.scalar(1.0 / 6)},
               {builder.make_numbers(node, node.output(), layout)}, options_of(schema::MulOptionsT()));
}

void gelu(Builder& builder, const Node& node) {
  schema::GeluOptionsT options;
  options.approximate = text_arg(node, "approximate") == "tanh";
  unary(builder, node, Operation::GELU, /*integers=*/false, nullptr, options_of(std::move(options)));
}

void leaky_relu(Builder& builder, const Node& node) {
  schema::LeakyReluOptionsT options;
  options.alpha = static_cast<float>(number_arg(node, "negative_slope"));
  unary(builder, node, Operation::LEAKY_RELU, /*integers=*/true, nullptr, options_of(std::move(options)));
}

void elu(Builder& builder, const Node& node) {
  if (number_arg(node, "alpha") != 1 || number_arg(node, "scale") != 1 ||
      number_arg(node, "input_scale") != 1)
    refuse(node, "expected alpha and scales of 1");
  unary(builder, node, Operation::ELU, /*integers=*/false);
}

/// hardtanh, clamp, clamp_min and clamp_max.
void clamp(Builder& builder, const Node& node) {
  const auto fused = is_float(node) ? fused_activation(node) : std::nullopt;
  if (fused == schema::Activation::RELU) return unary(builder, node, Operation::RELU, true);
  if (fused == schema::Activation::RELU6) return unary(builder, node, Operation::RELU6, true);
  between_bounds(builder, node, bounds_of(node));
}

/// Over the last dimension of the file.
void softmax(Builder& builder, const Node& node) {
  const bool log = node.op().find("log") != std::string_view::npos;
  const Value& x = *node.args.at(0).value;
  if (exchange::type_of(x) != exchange::type_of(*node.output()))
    refuse(node, "expected a result of its input's type");
  const int64_t rank = rank_of(node, x), dim = dim_arg(node, "dim", rank);
  if (dim != rank - 1 && !(dim == 1 && rank > 2))
    refuse(node, "expected a softmax over the channels or the last dimension");
  const Layout layout = dim == rank - 1 ? Layout::as_is : Layout::channels_last;
  Ending ending = builder.ending_of(node, !log && builder.has_codes(&x));
  if (!ending.integer || !(ending.steps == kUnitSteps) || ending.fused != schema::Activation::NONE)
    ending = {.result = node.output()};
  const Index in = builder.tensor_of(node, &x, layout, ending.integer);
  schema::SoftmaxOptionsT options;
  options.beta = 1;
  builder.emit(log ? Operation::LOG_SOFTMAX : Operation::SOFTMAX, {in},
               {builder.result(node, ending, layout)}, log ? Options() : options_of(std::move(options)));
}

/// What does nothing in eval mode, and changes of type.
void identity(Builder& builder, const Node& node) {
  const Value& x = *node.args.at(0).value;
  if (has_arg(node, "train") && bool_arg(node, "train")) refuse(node, "expected no dropout in eval mode");
  const at::ScalarType from = exchange::type_of(x), to = exchange::type_of(*node.output());
  if (from == to) return builder.share(node.output(), &x);
  const Layout layout = builder.layout_of(&x);
  Index made = builder.cast(node, builder.numbers(node, &x, layout), to);
  if (to == at::kByte && from != at::kBool) {  // held in int32: what is beyond a byte wraps around
    const Index whole = made;
    made = builder.between(node, builder.shape_of(node, *node.output(), layout), schema::TensorType::INT32);
    builder.emit(Operation::FLOOR_MOD, {whole, builder.number(node, 256, at::kInt)}, {made});
  }
  builder.place(node.output(), made, layout);
}

}  // namespace

ConverterTable elementwise_converters() {
  static const std::vector<Converter> table = [] {
    std::vector<Converter> rows = {{"aten::round", round},
                                   {"aten::silu", silu},
                                   {"aten::hardsigmoid", hardsigmoid},
                                   {"aten::gelu", gelu},
                                   {"aten::leaky_relu", leaky_relu},
                                   {"aten::elu", elu},
                                   {"aten::hardtanh", clamp},
                                   {"aten::clamp", clamp},
                                   {"aten::clamp_min", clamp},
                                   {"aten::clamp_max", clamp},
                                   {"aten::softmax", softmax},
                                   {"aten::_softmax", softmax},
                                   {"aten::log_softmax", softmax},
                                   {"aten::_log_softmax", softmax},
                                   {"aten::dropout", identity},
                                   {"aten::feature_dropout", identity},
                                   {"aten::contiguous", identity},
                                   {"aten::clone", identity},
                                   {"aten::detach", identity},
                                   {"aten::alias", identity},
                                   {"aten::lift_fresh", identity},
                                   {"aten::to", identity},
                                   {"aten::_to_copy", identity},
                                   {"aten::type_as", identity}};
    for (const Same& one : kSame) rows.push_back({one.op, same});
    return rows;
  }();
  return table;
}

}  // namespace ulp::exchange::tflite
