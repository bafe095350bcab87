// Functions of one tensor, element by element: activations above all.
#include <cmath>

#include "ulp/exchange/tflite/converters.h"
#include "ulp/graph/fusion/activation_of.h"

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
  const Index in = builder.tensor_of(node, &x, layout, ending.integer);
  if (layout == Layout::flattened) builder.flatten(ending.result, builder.flattened_channels(&x));
  builder.emit(op, {in}, {builder.result(node, ending, layout)}, std::move(options));
}

void same(Builder& builder, const Node& node) {
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
  const auto bounds = graph::clamp_bounds(node);
  if (!bounds) refuse(node, "expected bounds that are numbers");
  const auto fused = fused_activation(node);
  if (fused == schema::Activation::RELU) return unary(builder, node, Operation::RELU, true);
  if (fused == schema::Activation::RELU6) return unary(builder, node, Operation::RELU6, true);
  const Value& x = *node.args.at(0).value;
  const Layout layout = builder.layout_of(&x);
  Index in = builder.numbers(node, &x, layout);
  const bool both = std::isfinite(bounds->low) && std::isfinite(bounds->high);
  const Index low = both ? part(builder, node, layout) : -1;
  const Index made = builder.make_numbers(node, node.output(), layout);
  if (std::isfinite(bounds->low)) {
    builder.emit(Operation::MAXIMUM, {in, builder.scalar(bounds->low)}, {both ? low : made});
    in = low;
  }
  if (std::isfinite(bounds->high))
    builder.emit(Operation::MINIMUM, {in, builder.scalar(bounds->high)}, {made});
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
  const Index in = builder.numbers(node, &x, layout);
  schema::CastOptionsT options;
  options.in_data_type = type_of(node, from);
  options.out_data_type = type_of(node, to);
  builder.emit(Operation::CAST, {in}, {builder.make_numbers(node, node.output(), layout)},
               options_of(std::move(options)));
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
