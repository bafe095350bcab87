#include <ATen/core/function_schema.h>

#include <algorithm>
#include <cmath>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

/// All tensor arguments, which broadcast.
std::vector<const Argument*> tensors(const graph::Node& node) {
  std::vector<const Argument*> found;
  for (const Argument& arg : node.args) {
    if (arg.is_value()) found.push_back(&arg);
  }
  return found;
}

/// Aligned from the last dimension; sizes of 1 belong to nobody.
Layout broadcast(Visit& visit) {
  Layout result;
  std::vector<Layout> operands;
  for (const Argument* arg : tensors(visit.node)) operands.push_back(visit.in(*arg));
  if (operands.empty()) visit.refuse("it reads no tensor");
  int64_t rank = 0;
  for (const Layout& operand : operands) rank = std::max(rank, operand.rank());
  for (int64_t d = rank; d >= 1; --d) {
    const Axis* widest = nullptr;
    for (const Layout& operand : operands) {
      if (operand.rank() < d) continue;
      const Axis& axis = operand.dims[operand.dim(-d)];
      if (!widest || axis.size() > widest->size()) widest = &axis;
    }
    for (const Layout& operand : operands) {
      if (operand.rank() < d || operand.dims[operand.dim(-d)].size() == 1) continue;
      visit.unite(*widest, operand.dims[operand.dim(-d)]);
    }
    result.add(*widest, false);
  }
  return result;
}

/// Whether an operand is there and zero along dimension -d of the result.
bool is_zero(const Layout& operand, int64_t d, const Axis& of) {
  return operand.rank() >= d && operand.dims[operand.dim(-d)].size() == of.size() &&
         operand.zero[operand.dim(-d)];
}

enum class Zero : uint8_t { never, any, all, first };

template <Zero zero>
void broadcast_rule(Visit& visit) {
  Layout result = broadcast(visit);
  const std::vector<const Argument*> operands = tensors(visit.node);
  for (int64_t d = 1; d <= result.rank(); ++d) {
    const Axis& axis = result.dims[result.dim(-d)];
    const auto holds = [&](const Argument* arg) { return is_zero(visit.in(*arg), d, axis); };
    bool zeros = false;
    if constexpr (zero == Zero::any) zeros = std::ranges::any_of(operands, holds);
    if constexpr (zero == Zero::all) zeros = std::ranges::all_of(operands, holds);
    if constexpr (zero == Zero::first) zeros = holds(operands[0]);
    result.zero[result.dim(-d)] = zeros;
  }
  visit.out(std::move(result));
}

constexpr RuleFunction kNever = broadcast_rule<Zero::never>;
constexpr RuleFunction kAny = broadcast_rule<Zero::any>;
constexpr RuleFunction kAll = broadcast_rule<Zero::all>;
constexpr RuleFunction kFirst = broadcast_rule<Zero::first>;

/// a + number: zero stays zero where the number is.
void add(Visit& visit) {
  const Argument& other = visit.node.args.at(1);
  if (other.is_value()) return kAll(visit);
  return graph::number(other) == 0.0 ? kFirst(visit) : kNever(visit);
}

void power(Visit& visit) {
  const std::optional<double> exponent = graph::number(visit.node.args.at(1));
  return exponent && *exponent > 0 ? kFirst(visit) : kNever(visit);
}

/// 0 stays 0 where it lies between the limits; a limit that is no number is none.
void clamp(Visit& visit) {
  bool zero = true;
  for (size_t i = 1; i < visit.node.args.size(); ++i) {
    const Argument& limit = visit.node.args[i];
    if (limit.is_none()) continue;
    const std::optional<double> number = graph::number(limit);
    const bool lower = visit.node.schema().arguments()[i].name().starts_with("min");
    zero = zero && number && (lower ? *number <= 0 : *number >= 0);
  }
  return zero ? kFirst(visit) : kNever(visit);
}

void masked_fill(Visit& visit) {
  return graph::number(visit.node.arg("value")) == 0.0 ? kFirst(visit) : kNever(visit);
}

/// What has the sizes of its first argument and nothing to do with others.
template <bool keeps_zero>
void same_as_first(Visit& visit) {
  Layout result = visit.in(visit.node.args.at(0));
  if (!keeps_zero) result.zero.assign(result.dims.size(), false);
  visit.out(std::move(result));
}

/// One number everywhere, as the C++ frontend writes 1 / x.
void filled(Visit& visit) {
  Layout result = visit.in("self");
  result.zero.assign(result.dims.size(), graph::number(visit.node.arg("value")) == 0.0);
  visit.out(std::move(result));
}

/// One slope, or one a channel.
void prelu(Visit& visit) {
  Layout result = visit.in("self");
  const Axis& slopes = visit.in("weight").dims.at(0);
  if (slopes.size() > 1) visit.unite(result.dims.at(1), slopes);
  visit.out(std::move(result));
}

/// a * sigmoid(b) of the two halves of a dimension.
void glu(Visit& visit) {
  Layout result = visit.in("self");
  const size_t dim = visit.dim("dim", result);
  const Axis whole = result.dims[dim];
  const auto half = static_cast<int64_t>(whole.size() / 2);
  const Axis first(whole.begin(), whole.begin() + half), second(whole.begin() + half, whole.end());
  visit.unite(first, second);
  result.dims[dim] = first;
  visit.out(std::move(result));
}

constexpr RuleFunction kSame = same_as_first<true>, kOther = same_as_first<false>;

constexpr Rule kElementwiseRules[] = {
    // f(0) = 0
    {"aten::relu", kSame},
    {"aten::relu6", kSame},
    {"aten::leaky_relu", kSame},
    {"aten::elu", kSame},
    {"aten::selu", kSame},
    {"aten::celu", kSame},
    {"aten::gelu", kSame},
    {"aten::silu", kSame},
    {"aten::mish", kSame},
    {"aten::tanh", kSame},
    {"aten::hardswish", kSame},
    {"aten::hardshrink", kSame},
    {"aten::softshrink", kSame},
    {"aten::tanhshrink", kSame},
    {"aten::softsign", kSame},
    {"aten::rrelu", kSame},
    {"aten::neg", kSame},
    {"aten::abs", kSame},
    {"aten::square", kSame},
    {"aten::sqrt", kSame},
    {"aten::sin", kSame},
    {"aten::asin", kSame},
    {"aten::tan", kSame},
    {"aten::atan", kSame},
    {"aten::sinh", kSame},
    {"aten::asinh", kSame},
    {"aten::atanh", kSame},
    {"aten::erf", kSame},
    {"aten::expm1", kSame},
    {"aten::log1p", kSame},
    {"aten::sign", kSame},
    {"aten::floor", kSame},
    {"aten::ceil", kSame},
    {"aten::round", kSame},
    {"aten::trunc", kSame},
    {"aten::frac", kSame},
    {"aten::dropout", kSame},
    {"aten::feature_dropout", kSame},
    {"aten::contiguous", kSame},
    {"aten::clone", kSame},
    {"aten::detach", kSame},
    {"aten::alias", kSame},
    {"aten::to", kSame},
    {"aten::_to_copy", kSame},
    {"aten::type_as", kSame},
    {"aten::zeros_like", kSame},
    // f(0) is something else, or not known
    {"aten::sigmoid", kOther},
    {"aten::hardsigmoid", kOther},
    {"aten::exp", kOther},
    {"aten::log", kOther},
    {"aten::log2", kOther},
    {"aten::log10", kOther},
    {"aten::cos", kOther},
    {"aten::acos", kOther},
    {"aten::cosh", kOther},
    {"aten::acosh", kOther},
    {"aten::softplus", kOther},
    {"aten::log_sigmoid", kOther},
    {"aten::rsqrt", kOther},
    {"aten::reciprocal", kOther},
    {"aten::alpha_dropout", kOther},
    {"aten::feature_alpha_dropout", kOther},
    {"aten::bernoulli", kOther},
    {"aten::ones_like", kOther},
    {"aten::full_like", kOther},
    {"aten::empty_like", kOther},
    {"aten::rand_like", kOther},
    {"aten::randn_like", kOther},
    {"aten::logical_not", kOther},
    {"aten::isnan", kOther},
    {"aten::isinf", kOther},
    {"aten::bitwise_not", kOther},
    {"aten::erfc", kOther},
    {"aten::exp2", kOther},
    {"aten::threshold", kOther},
    {"aten::logit", kOther},
    {"aten::nan_to_num", kSame},
    // several operands
    {"aten::add", add},
    {"aten::sub", add},
    {"aten::rsub", kNever},
    {"aten::add_", add},
    {"aten::mul", kAny},
    {"aten::div", kFirst},
    {"aten::pow", power},
    {"aten::maximum", kAll},
    {"aten::minimum", kAll},
    {"aten::clamp", clamp},
    {"aten::clamp_min", clamp},
    {"aten::clamp_max", clamp},
    {"aten::hardtanh", clamp},
    {"aten::masked_fill", masked_fill},
    {"aten::fill", filled},
    {"aten::where", kNever},
    {"aten::eq", kNever},
    {"aten::ne", kNever},
    {"aten::lt", kNever},
    {"aten::le", kNever},
    {"aten::gt", kNever},
    {"aten::ge", kNever},
    {"aten::logical_and", kNever},
    {"aten::logical_or", kNever},
    {"aten::logical_xor", kNever},
    {"aten::atan2", kNever},
    {"aten::fmod", kNever},
    {"aten::remainder", kNever},
    {"aten::lerp", kNever},
    {"aten::addcmul", kNever},
    {"aten::addcdiv", kNever},
    {"aten::floor_divide", kNever},
    {"aten::hypot", kAll},
    {"ulp::by_mode", kAll},
    {"aten::prelu", prelu},
    {"aten::glu", glu}};

}  // namespace

std::span<const Rule> elementwise_rules() {
  return kElementwiseRules;
}

}  // namespace ulp::prune
