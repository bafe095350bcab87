#include "ulp/exchange/arguments.h"

#include <ATen/core/function_schema.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "ulp/graph/passes/pattern.h"

namespace ulp::exchange {

using graph::Argument;
using graph::SizeExpr;
using graph::Value;

namespace {

/// What an argument is in eval mode.
const Argument& in_eval(const Argument& argument) {
  return argument.kind == Argument::Kind::by_mode ? argument.items.at(0) : argument;
}

const Argument& argument_of(const graph::Node& node, std::string_view argument) {
  return in_eval(node.arg(argument));
}

}  // namespace

const std::vector<SizeExpr>& sizes_of(const graph::Node& node, const Value& value) {
  if (!value.meta) refuse(node, "the sizes of '", value.name, "' are not known");
  return value.meta->sizes;
}

int64_t rank_of(const graph::Node& node, const Value& value) {
  return std::ssize(sizes_of(node, value));
}

int64_t fixed_size(const graph::Node& node, const Value& value, int64_t dim) {
  const std::vector<SizeExpr>& sizes = sizes_of(node, value);
  const SizeExpr& size = sizes.at(static_cast<size_t>(dim < 0 ? dim + std::ssize(sizes) : dim));
  if (!size.constant()) refuse(node, "expected dimension ", dim, " of '", value.name, "' not to be free");
  return size.offset;
}

at::ScalarType type_of(const Value& value) {
  return value.meta ? value.meta->dtype : at::kFloat;
}

Value* optional_value(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  return arg.is_value() ? arg.value : nullptr;
}

Value* value_arg(const graph::Node& node, std::string_view argument) {
  Value* value = optional_value(node, argument);
  if (value == nullptr) refuse(node, "expected '", argument, "' to be a tensor of the graph");
  return value;
}

int64_t int_arg(const graph::Node& node, std::string_view argument) {
  const SizeExpr size = size_arg(node, argument_of(node, argument));
  if (!size.constant()) refuse(node, "expected '", argument, "' to be a constant integer");
  return size.offset;
}

bool bool_arg(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  if (arg.kind == Argument::Kind::training) return arg.inverted;
  if (arg.kind != Argument::Kind::literal || !arg.literal.isBool())
    refuse(node, "expected '", argument, "' to be true or false");
  return arg.literal.toBool();
}

std::optional<double> optional_number(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  if (arg.is_none()) return std::nullopt;
  if (arg.kind == Argument::Kind::literal && arg.literal.isBool()) return arg.literal.toBool() ? 1 : 0;
  const std::optional<double> number = graph::number(arg);
  if (!number) refuse(node, "expected '", argument, "' to be a number");
  return number;
}

double number_arg(const graph::Node& node, std::string_view argument) {
  const std::optional<double> number = optional_number(node, argument);
  if (!number) refuse(node, "expected '", argument, "' to be a number, got none");
  return *number;
}

c10::Scalar scalar_arg(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  if (arg.kind == Argument::Kind::literal && arg.literal.isInt()) return arg.literal.toInt();
  return number_arg(node, argument);
}

c10::Scalar scalar_arg(const graph::Node& node, std::string_view argument, double otherwise) {
  return argument_of(node, argument).is_none() ? c10::Scalar(otherwise) : scalar_arg(node, argument);
}

Bounds bounds_of(const graph::Node& node) {
  if (node.is("aten::relu")) return {0, std::nullopt};
  if (node.is("aten::relu6")) return {0, 6};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto bound = [&](const char* argument, double open) -> std::optional<c10::Scalar> {
    if (!has_arg(node, argument) || argument_of(node, argument).is_none()) return std::nullopt;
    if (argument_of(node, argument).kind != Argument::Kind::literal)
      refuse(node, "expected bounds that are numbers");
    const c10::Scalar value = scalar_arg(node, argument);
    return value.isFloatingPoint() && value.toDouble() == open ? std::nullopt : std::optional(value);
  };
  if (node.is("aten::hardtanh")) return {bound("min_val", -kInfinity), bound("max_val", kInfinity)};
  return {bound("min", -kInfinity), bound("max", kInfinity)};
}

std::string text_arg(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  if (arg.kind != Argument::Kind::literal || !arg.literal.isString())
    refuse(node, "expected '", argument, "' to be a word");
  return arg.literal.toStringRef();
}

SizeExpr size_arg(const graph::Node& node, const Argument& argument) {
  const Argument& arg = in_eval(argument);
  if (arg.kind == Argument::Kind::batch) return arg.batch;
  const std::optional<int64_t> number = graph::integer(arg);
  if (!number) refuse(node, "expected a size to be a number, or to follow the sizes of the inputs");
  return {0, 1, *number};
}

std::vector<SizeExpr> sizes_arg(const graph::Node& node, std::string_view argument) {
  const Argument& arg = argument_of(node, argument);
  std::vector<SizeExpr> sizes;
  if (arg.kind == Argument::Kind::list) {
    for (const Argument& item : arg.items) sizes.push_back(size_arg(node, item));
    return sizes;
  }
  if (const auto numbers = graph::integers(arg)) {
    for (const int64_t number : *numbers) sizes.push_back({0, 1, number});
    return sizes;
  }
  return {size_arg(node, arg)};
}

std::vector<int64_t> ints_arg(const graph::Node& node, std::string_view argument) {
  std::vector<int64_t> values;
  for (const SizeExpr& size : sizes_arg(node, argument)) {
    if (!size.constant()) refuse(node, "expected '", argument, "' to hold constant integers");
    values.push_back(size.offset);
  }
  return values;
}

std::vector<int64_t> ints_arg(const graph::Node& node, std::string_view argument, size_t n,
                              std::vector<int64_t> fallback) {
  const std::vector<int64_t> values = ints_arg(node, argument);
  return graph::spread(values.empty() ? std::move(fallback) : values, n);
}

int64_t dim_arg(const graph::Node& node, std::string_view argument, int64_t rank) {
  const int64_t dim = int_arg(node, argument);
  return dim < 0 ? dim + rank : dim;
}

bool has_arg(const graph::Node& node, std::string_view argument) {
  return std::ranges::any_of(node.schema().arguments(),
                             [&](const auto& one) { return one.name() == argument; });
}

Decimals decimals_of(const graph::Node& node) {
  const int64_t decimals = has_arg(node, "decimals") ? int_arg(node, "decimals") : 0;
  if (decimals == 0) return {};
  const at::ScalarType type = type_of(*node.output());
  const double power = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  constexpr double kLargestHalf = 65504, kLargestFloat = 3.4e38;
  if (!at::isFloatingType(type) || power > (type == at::kHalf ? kLargestHalf : kLargestFloat))
    refuse(node, "expected decimals whose power of ten is a number of the result's type ",
           c10::toString(type), ", got ", decimals);
  return {power, decimals > 0};
}

void check_softplus(const graph::Node& node) {
  constexpr double kRounded = 15;  // exp(-15) is half of f32's epsilon times 15
  if (number_arg(node, "beta") != 1) refuse(node, "expected beta to be 1");
  if (number_arg(node, "threshold") < kRounded)
    refuse(node, "expected a threshold of ", kRounded, " or more, got ", number_arg(node, "threshold"));
}

at::ScalarType common_type(const graph::Node& node) {
  // LibTorch's state of a promotion: tensors, tensors without dimensions, numbers.
  at::native::ResultTypeState state;
  for (const Argument& arg : node.args) {
    if (arg.is_value()) {
      const bool scalar = arg.value->meta && arg.value->meta->sizes.empty();
      at::ScalarType& kept = scalar ? state.zeroResult : state.dimResult;
      const at::ScalarType type = type_of(*arg.value);
      kept = kept == at::ScalarType::Undefined ? type : c10::promoteTypes(kept, type);
    } else if (arg.kind == Argument::Kind::literal && arg.literal.isScalar()) {
      state = at::native::update_result_type_state(arg.literal.toScalar(), state);
    } else if (arg.kind == Argument::Kind::batch) {
      state = at::native::update_result_type_state(c10::Scalar(int64_t{1}), state);
    }
  }
  const at::ScalarType type = at::native::result_type(state);
  return type == at::kBool ? at::kLong : type;
}

std::vector<int64_t> reduced_dims(const graph::Node& node, const Value& x) {
  std::vector<int64_t> dims;
  if (has_arg(node, "dim") && !node.arg("dim").is_none()) dims = ints_arg(node, "dim");
  if (!dims.empty()) return dims;
  dims.resize(static_cast<size_t>(rank_of(node, x)));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

namespace {

/// The order that movedim makes: some dimensions get places, the others keep their order.
std::vector<int64_t> moved_dims(const graph::Node& node, std::vector<int64_t> rest) {
  const int64_t rank = std::ssize(rest);
  const std::vector<int64_t> from = ints_arg(node, "source"), to = ints_arg(node, "destination");
  const auto place = [&](int64_t dim) { return dim < 0 ? dim + rank : dim; };
  std::vector<int64_t> order(rest.size(), -1);
  for (size_t i = 0; i < from.size(); ++i) {
    order.at(static_cast<size_t>(place(to[i]))) = place(from[i]);
    std::erase(rest, place(from[i]));
  }
  auto next = rest.begin();
  for (int64_t& dim : order) {
    if (dim < 0) dim = *next++;
  }
  return order;
}

}  // namespace

std::vector<int64_t> permuted_dims(const graph::Node& node) {
  const int64_t rank = rank_of(node, *value_arg(node, "self"));
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (has_arg(node, "source")) return moved_dims(node, order);
  if (node.is("aten::mT")) {
    if (rank < 2) refuse(node, "expected a matrix or several");
    std::swap(order[order.size() - 2], order.back());
    return order;
  }
  if (has_arg(node, "dims")) {
    order = ints_arg(node, "dims");
    for (int64_t& dim : order) dim += dim < 0 ? rank : 0;
  } else if (has_arg(node, "dim0")) {
    std::swap(order.at(static_cast<size_t>(dim_arg(node, "dim0", rank))),
              order.at(static_cast<size_t>(dim_arg(node, "dim1", rank))));
  } else {
    std::ranges::reverse(order);
  }
  return order;
}

}  // namespace ulp::exchange
