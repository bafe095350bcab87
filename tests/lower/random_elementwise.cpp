// Steps that compute each element by itself, or from two values.
#include <algorithm>

#include "random_net.h"

namespace ulp::test::recipe {

namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Maybe = std::optional<RandomStep>;

struct Function {
  const char* words;
  Tensor (*apply)(const Tensor&);
};

#define ULP_FUNCTION(...)                                               \
  Function {                                                            \
#__VA_ARGS__, [](const Tensor& x) -> Tensor { return __VA_ARGS__; } \
  }

// Arguments of roots, logarithms and quotients stay away from 0, where rounding would be enlarged.
constexpr Function kSmooth[] = {
    ULP_FUNCTION(torch::relu(x)),
    ULP_FUNCTION(F::relu6(x)),
    ULP_FUNCTION(F::gelu(x)),
    ULP_FUNCTION(at::gelu(x, "tanh")),
    ULP_FUNCTION(torch::silu(x)),
    ULP_FUNCTION(F::mish(x)),
    ULP_FUNCTION(torch::tanh(x)),
    ULP_FUNCTION(torch::sigmoid(x)),
    ULP_FUNCTION(F::softplus(x)),
    ULP_FUNCTION(at::softplus(x, 2, 5)),
    ULP_FUNCTION(F::elu(x)),
    ULP_FUNCTION(at::elu(x, 0.5)),
    ULP_FUNCTION(torch::selu(x)),
    ULP_FUNCTION(torch::celu(x, 0.7)),
    ULP_FUNCTION(at::leaky_relu(x, 0.2)),
    ULP_FUNCTION(at::hardswish(x)),
    ULP_FUNCTION(at::hardsigmoid(x)),
    ULP_FUNCTION(at::hardtanh(x, -2, 1)),
    ULP_FUNCTION(at::log_sigmoid(x)),
    ULP_FUNCTION(at::softshrink(x, 0.3)),
    ULP_FUNCTION(F::softsign(x)),
    ULP_FUNCTION(torch::sin(x)),
    ULP_FUNCTION(torch::cos(x)),
    ULP_FUNCTION(torch::atan(x)),
    ULP_FUNCTION(torch::erf(x)),
    ULP_FUNCTION(x.abs()),
    ULP_FUNCTION(x.square()),
    ULP_FUNCTION(x.pow(3)),
    ULP_FUNCTION((x.abs() + 0.1).pow(1.3)),
    ULP_FUNCTION((x.abs() + 0.1).sqrt()),
    ULP_FUNCTION((x * x + 0.5).rsqrt()),
    ULP_FUNCTION((x.abs() + 0.5).reciprocal()),
    ULP_FUNCTION((x.abs() + 0.5).log()),
    ULP_FUNCTION((x.abs() + 0.5).log2()),
    ULP_FUNCTION(x.abs().log1p()),
    ULP_FUNCTION((-x.abs()).exp()),
    ULP_FUNCTION((-x.abs()).expm1()),
    ULP_FUNCTION(x.clamp(-1, 0.5)),
    ULP_FUNCTION(x.clamp_min(-0.3)),
    ULP_FUNCTION(x.clamp_max(0.3)),
    ULP_FUNCTION(-x),
    ULP_FUNCTION(1 - x),
    ULP_FUNCTION(x * 0.7 + 0.1),
    ULP_FUNCTION((x - 0.2) / 3),
    ULP_FUNCTION(at::rsub(x, 1, 2)),
    ULP_FUNCTION(x* torch::sigmoid(x * 1.702)),
    ULP_FUNCTION(x.clone().add_(0.5).relu_()),
    ULP_FUNCTION((x * 1).mul_(0.5).clamp_(-1, 1)),
    ULP_FUNCTION(torch::ones_like(x) - x),
    ULP_FUNCTION(x + torch::zeros_like(x)),
    ULP_FUNCTION(torch::dropout(x, 0.3, false) * 2),
};

constexpr Function kJumps[] = {
    ULP_FUNCTION(x.floor()),
    ULP_FUNCTION(x.ceil()),
    ULP_FUNCTION((x * 2).round()),
    ULP_FUNCTION((x * 3).trunc()),
    ULP_FUNCTION(x.sign()),
    ULP_FUNCTION(at::hardshrink(x, 0.3)),
    ULP_FUNCTION(at::threshold(x, 0.1, 2)),
    ULP_FUNCTION((x > 0.3).to(x.dtype())),
    ULP_FUNCTION(torch::where(x > 0, x, x * 0.2 - 1)),
    ULP_FUNCTION(x.masked_fill(x < -0.5, 0.7)),
    ULP_FUNCTION(torch::logical_and(x > -1, x < 1).to(x.dtype())),
    ULP_FUNCTION(at::div(x, 0.7, "floor")),
    ULP_FUNCTION(torch::remainder(x, 1.7)),
    ULP_FUNCTION(torch::fmod(x, 0.9)),
    ULP_FUNCTION(x.ge(0).logical_not().to(x.dtype())),
};
#undef ULP_FUNCTION

Maybe smooth(RandomNet& net, size_t x) {
  const Function& function = kSmooth[net.dice.below(std::size(kSmooth))];
  return step_on(x, function.words, function.apply);
}

Maybe jump(RandomNet& net, size_t x) {
  if (!net.rules().jumps || !net.is_exact(x)) return {};
  const Function& function = kJumps[net.dice.below(std::size(kJumps))];
  return step_on(x, function.words, function.apply);
}

/// With a parameter of one size along the channels or the last dimension.
Maybe with_parameter(RandomNet& net, size_t x) {
  const at::IntArrayRef sizes = net.value(x).sizes();
  if (sizes.size() < 2) return {};
  const int64_t rank = static_cast<int64_t>(sizes.size()), dim = net.dice.coin() ? 1 : rank - 1;
  std::vector<int64_t> shape(sizes.size() - static_cast<size_t>(dim), 1);
  shape[0] = sizes[static_cast<size_t>(dim)];
  if (net.dice.coin()) shape.insert(shape.begin(), static_cast<size_t>(dim), 1);
  const Tensor p = net.parameter(shape);
  const std::string of = say(" a parameter ", at::IntArrayRef(shape));
  switch (net.dice.below(3)) {
    case 0:
      return step_on(x, "add" + of, [p](const Tensor& a) { return a + p; });
    case 1:
      return step_on(x, "times" + of, [p](const Tensor& a) { return a * (p + 1); });
    default:
      return step_on(x, "taken from" + of, [p](const Tensor& a) { return p - a; });
  }
}

struct Pair {
  const char* words;
  Tensor (*apply)(const Tensor&, const Tensor&);
};
#define ULP_PAIR(...)                                                                    \
  Pair {                                                                                 \
#__VA_ARGS__, [](const Tensor& a, const Tensor& b) -> Tensor { return __VA_ARGS__; } \
  }
constexpr Pair kPairs[] = {
    ULP_PAIR(a + b),
    ULP_PAIR(a - b),
    ULP_PAIR(a* b),
    ULP_PAIR(torch::add(a, b, 0.3)),
    ULP_PAIR(a / (b.abs() + 0.5)),
    ULP_PAIR(torch::maximum(a, b)),
    ULP_PAIR(torch::minimum(a, b)),
    ULP_PAIR(torch::lerp(a, b, 0.3)),
    ULP_PAIR(torch::addcmul(a, b, b, 0.5)),
    ULP_PAIR(torch::addcdiv(a, b, b.abs() + 1, 2)),
    ULP_PAIR(a * 0.5 + torch::sigmoid(b)),
    ULP_PAIR(torch::relu(a + b)),
    ULP_PAIR((a + torch::zeros_like(b)).add_(b)),
    ULP_PAIR(torch::pow(a.abs() + 0.5, torch::tanh(b))),
};
#undef ULP_PAIR

bool broadcast(at::IntArrayRef a, at::IntArrayRef b) {
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const int64_t left = a[a.size() - i], right = b[b.size() - i];
    if (left != right && left != 1 && right != 1) return false;
  }
  return a.size() == b.size();  // so that the batch stays dimension 0 of both
}

Maybe pair(RandomNet& net, size_t x) {
  for (int i = 0; i < 8; ++i) {
    const auto y = static_cast<size_t>(net.dice.below(static_cast<int64_t>(net.values())));
    if (!broadcast(net.value(x).sizes(), net.value(y).sizes())) continue;
    const Pair& function = kPairs[net.dice.below(std::size(kPairs))];
    return RandomStep{function.words, {x, y}, [apply = function.apply](const std::vector<Tensor>& operands) {
                        return apply(operands[0], operands[1]);
                      }};
  }
  return {};
}

/// One of two values, by the sign of an input or what is moved of it.
Maybe chosen(RandomNet& net, size_t x) {
  for (size_t mask = 0; mask < net.values(); ++mask) {
    if (!net.rules().jumps || !net.is_exact(mask) || net.value(mask).sizes() != net.value(x).sizes())
      continue;
    return RandomStep{"where(b > 0.1, a, -a)", {x, mask}, [](const std::vector<Tensor>& operands) {
                        return torch::where(operands[1] > 0.1, operands[0], -operands[0]);
                      }};
  }
  return {};
}

}  // namespace

RandomFamily random_elementwise() {
  static constexpr DrawStep kSteps[] = {smooth, smooth, jump, with_parameter};
  return {kSteps};
}

RandomFamily random_pairs() {
  static constexpr DrawStep kSteps[] = {pair, pair, pair, chosen};
  return {kSteps};
}

}  // namespace ulp::test::recipe
