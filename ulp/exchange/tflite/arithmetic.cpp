// Arithmetic and comparisons of two tensors, or of a tensor and a number.
#include <algorithm>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;
using schema::Operation;

/// The layout of a call on two tensors: channels last where the operand of its result's rank is so.
Layout common_layout(const Builder& builder, const Node& node, const Value* a, const Value* b) {
  const int64_t rank = rank_of(node, *node.output());
  for (const Value* one : {a, b}) {
    if (one == nullptr || rank < 3 || rank_of(node, *one) != rank) continue;
    if (builder.layout_of(one) == Layout::channels_last) return Layout::channels_last;
  }
  return Layout::as_is;
}

/// A tensor of fewer dimensions beside channels-last ones: with leading dimensions of 1.
Index widened(Builder& builder, const Node& node, const Value& value, int64_t rank) {
  std::vector<int64_t> order = {0};
  for (int64_t d = 2; d < rank; ++d) order.push_back(d);
  order.push_back(1);
  const Shape shape = builder.shape_of(node, value);
  std::vector<int64_t> wide(static_cast<size_t>(rank) - shape.sizes.size(), 1);
  wide.insert(wide.end(), shape.sizes.begin(), shape.sizes.end());
  if (const at::Tensor stored = builder.stored(value); stored.defined())
    return builder.constant(stored.reshape(wide).permute(order));
  if (shape.signature != shape.sizes && builder.free_batch())
    refuse(node, "expected a batch that is a number for this shape");
  std::vector<int64_t> turned;
  for (const int64_t dim : order) turned.push_back(wide[static_cast<size_t>(dim)]);
  const Index narrow = builder.numbers(node, &value);
  const Index straight = builder.like(narrow, fixed_shape(wide)),
              made = builder.like(narrow, fixed_shape(turned));
  builder.reshape(node, narrow, straight);
  builder.emit(Operation::TRANSPOSE, {straight, builder.ints(order)}, {made},
               options_of(schema::TransposeOptionsT()));
  return made;
}

/// A tensor or a number as a tensor of this type.
Index operand(Builder& builder, const Node& node, std::string_view argument, at::ScalarType type,
              Layout layout) {
  const Value* value = optional_value(node, argument);
  if (value == nullptr) {
    const graph::Argument& arg = node.arg(argument);
    if (arg.kind == graph::Argument::Kind::batch && builder.free_batch() && !arg.batch.constant())
      refuse(node, "expected a batch that is a number for what is computed with it");
    const c10::Scalar number = arg.kind == graph::Argument::Kind::batch
                                   ? c10::Scalar(builder.size_of(arg.batch))
                                   : scalar_arg(node, argument);
    return builder.number(node, number, type);
  }
  const int64_t rank = rank_of(node, *node.output());
  const bool widens = layout == Layout::channels_last && rank_of(node, *value) != rank;
  const Index tensor = widens ? widened(builder, node, *value, rank) : builder.numbers(node, value, layout);
  return builder.cast(node, tensor, type);
}

Options options_for(Operation op, schema::Activation fused) {
  const auto with = [&](auto options) {
    options.fused_activation_function = fused;
    return options_of(std::move(options));
  };
  switch (op) {
    case Operation::ADD:
      return with(schema::AddOptionsT());
    case Operation::SUB:
      return with(schema::SubOptionsT());
    case Operation::MUL:
      return with(schema::MulOptionsT());
    case Operation::DIV:
      return with(schema::DivOptionsT());
    default:
      return {};
  }
}

bool has_fused(Operation op) {
  return op == Operation::ADD || op == Operation::SUB || op == Operation::MUL || op == Operation::DIV;
}

/// Codes of both, of any steps: a sum or a product in integers.
bool are_codes(const Builder& builder, const Node& node, Operation op) {
  const Value *a = optional_value(node, "self"), *b = optional_value(node, "other");
  if (a == nullptr || b == nullptr || !builder.has_codes(a) || !builder.has_codes(b)) return false;
  const bool same_rank = rank_of(node, *a) == rank_of(node, *b);
  return same_rank && (op == Operation::ADD || op == Operation::SUB || op == Operation::MUL);
}

/// `op` of self and other, the second one times alpha, in the result's type.
void binary(Builder& builder, const Node& node, Operation op, bool swapped = false) {
  const c10::Scalar factor = has_arg(node, "alpha") ? scalar_arg(node, "alpha") : c10::Scalar(1);
  const bool scales = factor.toDouble() != 1;
  const Layout layout =
      common_layout(builder, node, optional_value(node, "self"), optional_value(node, "other"));
  const at::ScalarType type = exchange::type_of(*node.output());
  Ending ending = builder.ending_of(node, !scales && are_codes(builder, node, op));
  if (!has_fused(op) || type != at::kFloat) ending = {.result = node.output()};
  Index a = -1, b = -1;
  if (ending.integer) {
    a = builder.codes(node, optional_value(node, "self"), layout);
    b = builder.codes(node, optional_value(node, "other"), layout);
  } else {
    a = operand(builder, node, "self", type, layout);
    b = operand(builder, node, "other", type, layout);
  }
  if (scales) {
    Index& scaled = swapped ? a : b;
    const Index times = builder.like(scaled, builder.shape_of_tensor(scaled));
    builder.emit(Operation::MUL, {scaled, builder.number(node, factor, type)}, {times},
                 options_for(Operation::MUL, schema::Activation::NONE));
    scaled = times;
  }
  if (swapped) std::swap(a, b);
  builder.emit(op, {a, b}, {builder.result(node, ending, layout)}, options_for(op, ending.fused));
}

void add(Builder& builder, const Node& node) {
  binary(builder, node, Operation::ADD);
}
void sub(Builder& builder, const Node& node) {
  binary(builder, node, Operation::SUB);
}
/// other - alpha self.
void rsub(Builder& builder, const Node& node) {
  binary(builder, node, Operation::SUB, /*swapped=*/true);
}
void mul(Builder& builder, const Node& node) {
  binary(builder, node, Operation::MUL);
}
/// Of int32, which LiteRT alone divides; floats are spelled out before.
void whole_quotient(Builder& builder, const Node& node, Operation op) {
  const at::ScalarType type = exchange::type_of(*node.output());
  if (type != at::kInt)
    refuse(node, "expected floats or int32 for a whole quotient, got ", c10::toString(type));
  const Layout layout =
      common_layout(builder, node, optional_value(node, "self"), optional_value(node, "other"));
  const Index a = operand(builder, node, "self", type, layout),
              b = operand(builder, node, "other", type, layout);
  builder.emit(op, {a, b}, {builder.make_numbers(node, node.output(), layout)},
               options_for(op, schema::Activation::NONE));
}

void div(Builder& builder, const Node& node) {
  if (has_arg(node, "rounding_mode") && !node.arg("rounding_mode").is_none()) {
    const bool floors = text_arg(node, "rounding_mode") == "floor";
    return whole_quotient(builder, node, floors ? Operation::FLOOR_DIV : Operation::DIV);
  }
  if (!at::isFloatingType(exchange::type_of(*node.output()))) refuse(node, "expected a quotient in float");
  binary(builder, node, Operation::DIV);
}
void floor_divide(Builder& builder, const Node& node) {
  whole_quotient(builder, node, Operation::FLOOR_DIV);
}
void maximum(Builder& builder, const Node& node) {
  binary(builder, node, Operation::MAXIMUM);
}
void minimum(Builder& builder, const Node& node) {
  binary(builder, node, Operation::MINIMUM);
}

/// A power of whole numbers as products, which wrap as LibTorch's do: LiteRT has no powers of int64, and
/// those of int32 end at its bounds.
void whole_power(Builder& builder, const Node& node, at::ScalarType type, Layout layout) {
  constexpr int64_t kMost = 1 << 20;
  const bool fixed = optional_value(node, "exponent") == nullptr;
  const double exponent = fixed ? number_arg(node, "exponent") : 0;
  if (exponent < 1 || exponent > kMost)
    refuse(node, "expected float32, or whole numbers to the power of a number from 1 to ", kMost);
  const auto multiply = [&](Index a, Index b, Index product) {
    builder.emit(Operation::MUL, {a, b}, {product}, options_for(Operation::MUL, schema::Activation::NONE));
    return product;
  };
  const auto like = [&](Index a) { return builder.like(a, builder.shape_of_tensor(a)); };
  // What is left is power * square^rest; a power of -1 is 1.
  Index square = operand(builder, node, "self", type, layout), power = -1;
  auto rest = static_cast<int64_t>(exponent);
  while (rest > 2 || (rest == 2 && power >= 0)) {
    if (rest % 2 == 1) power = power < 0 ? square : multiply(power, square, like(square));
    square = multiply(square, square, like(square));
    rest /= 2;
  }
  if (power < 0) power = rest == 2 ? square : builder.number(node, 1, type);
  multiply(power, square, builder.make_numbers(node, node.output(), layout));
}

/// int32 to the power of computed ones. LiteRT stops at a negative one, where LibTorch's result is 0 but for
/// bases of 1 and -1.
void power_of_any_sign(Builder& builder, const Node& node, Index base, Index exponent, Layout layout) {
  const auto zero = builder.number(node, 0, at::kInt), one = builder.number(node, 1, at::kInt);
  const auto made = [&](Operation op, Indices inputs, Index like, schema::TensorType type) {
    const Index part = builder.between(node, builder.shape_of_tensor(like), type);
    builder.emit(op, std::move(inputs), {part});
    return part;
  };
  constexpr auto kInt = schema::TensorType::INT32, kBool = schema::TensorType::BOOL;
  const Index magnitude = made(Operation::ABS, {exponent}, exponent, kInt);
  const Index below = made(Operation::LESS, {exponent, zero}, exponent, kBool);
  const Index size = made(Operation::ABS, {base}, base, kInt);
  const Index larger = made(Operation::NOT_EQUAL, {size, one}, base, kBool);
  const Shape whole = builder.shape_of(node, *node.output(), layout);
  const Index power = builder.between(node, whole, kInt), vanishes = builder.between(node, whole, kBool);
  builder.emit(Operation::POW, {base, magnitude}, {power});
  builder.emit(Operation::LOGICAL_AND, {below, larger}, {vanishes});
  builder.emit(Operation::SELECT_V2, {vanishes, zero, power},
               {builder.make_numbers(node, node.output(), layout)});
}

void pow(Builder& builder, const Node& node) {
  const at::ScalarType type = exchange::type_of(*node.output());
  const Layout layout =
      common_layout(builder, node, optional_value(node, "self"), optional_value(node, "exponent"));
  const bool computed = optional_value(node, "exponent") != nullptr;
  if (type == at::kLong || (type == at::kInt && !computed)) return whole_power(builder, node, type, layout);
  // LibTorch takes the square root, whose result of -inf is NaN.
  const double exponent = computed ? 1 : number_arg(node, "exponent");
  if (exponent == 0.5 || exponent == -0.5) {
    const Index x = operand(builder, node, "self", type, layout);
    return builder.emit(exponent > 0 ? Operation::SQRT : Operation::RSQRT, {x},
                        {builder.make_numbers(node, node.output(), layout)});
  }
  const Index a = operand(builder, node, "self", type, layout),
              b = operand(builder, node, "exponent", type, layout);
  if (!at::isFloatingType(type) && computed) return power_of_any_sign(builder, node, a, b, layout);
  builder.emit(Operation::POW, {a, b}, {builder.make_numbers(node, node.output(), layout)});
}

void choose(Builder& builder, const Node& node, Operation op, at::ScalarType type) {
  const Layout layout =
      common_layout(builder, node, optional_value(node, "self"), optional_value(node, "other"));
  const Index a = operand(builder, node, "self", type, layout),
              b = operand(builder, node, "other", type, layout);
  builder.emit(op, {a, b}, {builder.make_numbers(node, node.output(), layout)});
}

struct Comparison {
  std::string_view op;
  Operation operation;
};
constexpr Comparison kComparisons[] = {
    {"aten::eq", Operation::EQUAL},   {"aten::ne", Operation::NOT_EQUAL},
    {"aten::lt", Operation::LESS},    {"aten::le", Operation::LESS_EQUAL},
    {"aten::gt", Operation::GREATER}, {"aten::ge", Operation::GREATER_EQUAL}};

void compare(Builder& builder, const Node& node) {
  for (const auto& [op, operation] : kComparisons) {
    if (node.is(op)) return choose(builder, node, operation, common_type(node));
  }
}

/// With the sign of the divisor.
void remainder(Builder& builder, const Node& node) {
  choose(builder, node, Operation::FLOOR_MOD, exchange::type_of(*node.output()));
}

/// A tensor as large as the result, for operators that want operands of one size.
Index as_large(Builder& builder, const Node& node, Index one, const Shape& shape) {
  if (builder.shape_of_tensor(one).sizes == shape.sizes) return one;
  if (builder.free_batch() && shape.signature != shape.sizes)
    refuse(node, "expected operands of one size where the batch is free");
  const Index made = builder.like(one, shape);
  builder.emit(Operation::BROADCAST_TO, {one, builder.ints({shape.sizes.begin(), shape.sizes.end()})}, {made},
               {}, 2);
  return made;
}

void atan2(Builder& builder, const Node& node) {
  const at::ScalarType type = exchange::type_of(*node.output());
  const Layout layout =
      common_layout(builder, node, optional_value(node, "self"), optional_value(node, "other"));
  const Shape shape = builder.shape_of(node, *node.output(), layout);
  const Index a = as_large(builder, node, operand(builder, node, "self", type, layout), shape),
              b = as_large(builder, node, operand(builder, node, "other", type, layout), shape);
  builder.emit(Operation::ATAN2, {a, b}, {builder.make_numbers(node, node.output(), layout)});
}

void reciprocal(Builder& builder, const Node& node) {
  const at::ScalarType type = exchange::type_of(*node.output());
  const Layout layout = builder.layout_of(value_arg(node, "self"));
  const Index x = operand(builder, node, "self", type, layout);
  builder.emit(Operation::DIV, {builder.number(node, 1, type), x},
               {builder.make_numbers(node, node.output(), layout)},
               options_for(Operation::DIV, schema::Activation::NONE));
}

void logical(Builder& builder, const Node& node) {
  const bool both = node.is("aten::logical_and");
  choose(builder, node, both ? Operation::LOGICAL_AND : Operation::LOGICAL_OR, at::kBool);
}

/// Elements of one tensor where a condition holds, else of another.
void select(Builder& builder, const Node& node, const char* condition, const char* then,
            const char* otherwise) {
  const at::ScalarType type = exchange::type_of(*node.output());
  const Layout layout =
      common_layout(builder, node, optional_value(node, then), optional_value(node, otherwise));
  const Index which = operand(builder, node, condition, at::kBool, layout);
  const Index a = operand(builder, node, then, type, layout),
              b = operand(builder, node, otherwise, type, layout);
  builder.emit(Operation::SELECT_V2, {which, a, b}, {builder.make_numbers(node, node.output(), layout)});
}

void where(Builder& builder, const Node& node) {
  select(builder, node, "condition", "self", "other");
}
void masked_fill(Builder& builder, const Node& node) {
  select(builder, node, "mask", "value", "self");
}

}  // namespace

ConverterTable arithmetic_converters() {
  static const std::vector<Converter> table = [] {
    std::vector<Converter> rows = {{"aten::add", add},
                                   {"aten::sub", sub},
                                   {"aten::rsub", rsub},
                                   {"aten::mul", mul},
                                   {"aten::div", div},
                                   {"aten::floor_divide", floor_divide},
                                   {"aten::maximum", maximum},
                                   {"aten::minimum", minimum},
                                   {"aten::pow", pow},
                                   {"aten::remainder", remainder},
                                   {"aten::atan2", atan2},
                                   {"aten::reciprocal", reciprocal},
                                   {"aten::logical_and", logical},
                                   {"aten::logical_or", logical},
                                   {"aten::where", where},
                                   {"aten::masked_fill", masked_fill}};
    for (const Comparison& one : kComparisons) rows.push_back({one.op, compare});
    return rows;
  }();
  return table;
}

}  // namespace ulp::exchange::tflite
