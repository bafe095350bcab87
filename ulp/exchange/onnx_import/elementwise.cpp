// Functions of one tensor, element by element: activations above all.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/quantized.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Functions that LibTorch has under one name.
template <Tensor (*function)(const Tensor&)>
void plain(Call& call) {
  call.set(function(call.x(0)));
}

Tensor softsign(const Tensor& x) {
  return at::div(x, at::add(at::abs(x), 1));
}
Tensor softplus(const Tensor& x) {
  return at::softplus(x);
}
Tensor round_half_even(const Tensor& x) {
  return at::round(x);
}
Tensor opposite(const Tensor& x) {
  return at::logical_not(x);
}

void gelu(Call& call) {
  call.set(at::gelu(call.x(0), call.attribute("approximate", "none")));
}

void hard_sigmoid(Call& call) {
  const double alpha = call.attribute("alpha", 0.2), beta = call.attribute("beta", 0.5);
  const Tensor x = call.x(0);
  if (alpha == decimal(1.0F / 6) && beta == 0.5) return call.set(at::hardsigmoid(x));
  call.set(at::clamp(at::add(at::mul(x, alpha), beta), 0, 1));
}

void leaky_relu(Call& call) {
  call.set(at::leaky_relu(call.x(0), call.attribute("alpha", 0.01)));
}

void elu(Call& call) {
  call.set(at::elu(call.x(0), call.attribute("alpha", 1.0)));
}

void celu(Call& call) {
  call.set(at::celu(call.x(0), call.attribute("alpha", 1.0)));
}

void selu(Call& call) {
  const double alpha = call.attribute("alpha", 1.67326319217681884765625),
               gamma = call.attribute("gamma", 1.05070102214813232421875);
  call.set(at::elu(call.x(0), alpha, gamma));
}

void thresholded_relu(Call& call) {
  call.set(at::threshold(call.x(0), call.attribute("alpha", 1.0), 0));
}

/// Whether slopes of these sizes, over the last dimensions of `x`, are one a channel, or one for all.
bool are_of_channels(const Call& call, const Tensor& x, at::IntArrayRef slopes) {
  constexpr int64_t kBroadcasts = 7;  // before, a list of slopes was one a channel
  const auto rank = static_cast<size_t>(x.dim());
  const bool one = std::ranges::all_of(slopes, [](int64_t size) { return size == 1; });
  if (one || rank < 2) return one;
  const bool lies_last = slopes.back() == x.size(-1) || slopes.size() != 1;
  if (slopes.size() == 1 && (call.opset() < kBroadcasts || !lies_last)) return slopes[0] == x.size(1);
  for (size_t d = 0; d < slopes.size(); ++d) {
    const size_t place = d + rank - slopes.size();
    if (place != 1 && slopes[d] != 1) return false;
  }
  return slopes.size() + 1 >= rank;
}

void prelu(Call& call) {
  const Tensor x = call.x(0);
  Tensor slope = call.x(1);
  if (slope.dim() > x.dim())
    call.refuse("expected slopes of at most ", x.dim(), " dimensions, got ", slope.sizes());
  if (!are_of_channels(call, x, slope.sizes()))
    return call.set(at::add(at::relu(x), at::mul(slope, at::clamp_max(x, 0))));
  if (slope.dim() != 1) slope = at::reshape(slope, {-1});
  call.set(at::prelu(x, slope));
}

/// A bound of Clip that is computed. One that is NaN bounds nothing, as ONNX Runtime has it.
std::optional<Tensor> computed_bound(Call& call, size_t i, double without) {
  const std::optional<Tensor> bound = call.optional(i);
  if (!bound || !at::isFloatingType(bound->scalar_type())) return bound;
  return at::masked_fill(*bound, at::isnan(*bound), without);
}

/// A bound of Clip that is a number before the run; nothing for NaN as an input, which is refused as an
/// attribute, as there.
std::optional<at::Scalar> known_bound(Call& call, size_t i, const char* name) {
  if (!call.has(i) && !call.has_attribute(name)) return std::nullopt;
  const std::optional<at::Scalar> bound = call.has(i) ? call.scalar(i) : call.attribute(name, 0.0);
  if (!bound || !std::isnan(bound->toDouble())) return bound;
  if (!call.has(i)) call.refuse("expected a number as attribute '", name, "', got NaN");
  return std::nullopt;
}

void clip(Call& call) {
  if (const Tensor codes = clipped_codes(call); codes.defined()) return call.set(codes);
  const Tensor x = call.x(0);
  const auto computed = [&](size_t i) { return call.has(i) && !call.scalar(i); };
  if (computed(1) || computed(2)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return call.set(at::clamp(x, computed_bound(call, 1, -kInfinity), computed_bound(call, 2, kInfinity)));
  }
  const auto low = known_bound(call, 1, "min"), high = known_bound(call, 2, "max");
  if (!low && !high) return call.set(x);
  const bool six = low && high && low->toDouble() == 0 && high->toDouble() == 6;
  call.set(six && at::isFloatingType(x.scalar_type()) ? at::relu6(x) : at::clamp(x, low, high));
}

/// Until opset 13, over all dimensions from the axis on, as one.
template <Tensor (*function)(const Tensor&, int64_t)>
void soft(Call& call) {
  constexpr int64_t kOneDimension = 13;
  const Tensor x = call.x(0);
  const bool one = call.opset() >= kOneDimension;
  const int64_t dim = call.dim(call.attribute("axis", int64_t{one ? -1 : 1}), x.dim());
  if (one || dim == x.dim() - 1) return call.set(function(x, dim));
  call.set(at::reshape(function(at::flatten(x, dim), dim), x.sizes()));
}
Tensor softmax(const Tensor& x, int64_t dim) {
  return at::softmax(x, dim);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  return at::log_softmax(x, dim);
}

void identity(Call& call) {
  call.set(call.x(0));
}

void dropout(Call& call) {
  if (call.wants(1)) call.refuse("expected nobody to ask for the mask");
  double ratio = call.attribute("ratio", 0.5);
  if (call.has(1)) ratio = call.number(1);
  call.set(at::dropout(call.x(0), ratio, call.training()));
}

void is_inf(Call& call) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor x = call.x(0);
  const bool below = call.attribute("detect_negative", int64_t{1}) != 0,
             above = call.attribute("detect_positive", int64_t{1}) != 0;
  if (below && above) return call.set(at::isinf(x));
  if (below || above) return call.set(at::eq(x, above ? kInfinity : -kInfinity));
  call.set(at::zeros_like(x, at::TensorOptions(at::kBool)));
}

void swish(Call& call) {
  const Tensor x = call.x(0);
  const double alpha = call.attribute("alpha", 1.0);
  call.set(alpha == 1 ? at::silu(x) : at::mul(x, at::sigmoid(at::mul(x, alpha))));
}

/// 0 near 0, and nearer by the bias elsewhere.
void shrink(Call& call) {
  const Tensor x = call.x(0);
  const double limit = call.attribute("lambd", 0.5), bias = call.attribute("bias", 0.0);
  const Tensor above = at::where(at::gt(x, limit), at::sub(x, bias), at::zeros_like(x));
  call.set(at::where(at::lt(x, -limit), at::add(x, bias), above));
}

/// 1 at the first of the largest, 0 elsewhere; until opset 13 of all dimensions from the axis on, as one.
void hardmax(Call& call) {
  constexpr int64_t kOneDimension = 13;
  const Tensor x = call.x(0);
  const bool one = call.opset() >= kOneDimension;
  const int64_t dim = call.dim(call.attribute("axis", int64_t{one ? -1 : 1}), x.dim());
  const Tensor rows = one || dim == x.dim() - 1 ? x : at::flatten(x, dim);
  const Tensor places = at::argmax(rows, dim, /*keepdim=*/true);
  const Tensor result = at::scatter(at::zeros_like(rows), dim, places, 1);
  call.set(result.sizes() == x.sizes() ? result : at::reshape(result, x.sizes()));
}

}  // namespace

ConverterTable elementwise_table() {
  static constexpr Converter kTable[] = {{"Relu", plain<at::relu>},
                                         {"Sigmoid", plain<at::sigmoid>},
                                         {"Tanh", plain<at::tanh>},
                                         {"Exp", plain<at::exp>},
                                         {"Log", plain<at::log>},
                                         {"Sqrt", plain<at::sqrt>},
                                         {"Abs", plain<at::abs>},
                                         {"Neg", plain<at::neg>},
                                         {"Floor", plain<at::floor>},
                                         {"Ceil", plain<at::ceil>},
                                         {"Round", plain<round_half_even>},
                                         {"Sin", plain<at::sin>},
                                         {"Cos", plain<at::cos>},
                                         {"Tan", plain<at::tan>},
                                         {"Asin", plain<at::asin>},
                                         {"Acos", plain<at::acos>},
                                         {"Atan", plain<at::atan>},
                                         {"Sinh", plain<at::sinh>},
                                         {"Cosh", plain<at::cosh>},
                                         {"Erf", plain<at::erf>},
                                         {"Reciprocal", plain<at::reciprocal>},
                                         {"Sign", plain<at::sign>},
                                         {"HardSwish", plain<at::hardswish>},
                                         {"Mish", plain<at::mish>},
                                         {"Softplus", plain<softplus>},
                                         {"Softsign", plain<softsign>},
                                         {"Not", plain<opposite>},
                                         {"IsNaN", plain<at::isnan>},
                                         {"IsInf", is_inf},
                                         {"Gelu", gelu},
                                         {"HardSigmoid", hard_sigmoid},
                                         {"LeakyRelu", leaky_relu},
                                         {"Elu", elu},
                                         {"Celu", celu},
                                         {"Selu", selu},
                                         {"ThresholdedRelu", thresholded_relu},
                                         {"PRelu", prelu},
                                         {"Clip", clip},
                                         {"Softmax", soft<softmax>},
                                         {"LogSoftmax", soft<log_softmax>},
                                         {"Identity", identity},
                                         {"Dropout", dropout},
                                         {"Swish", swish},
                                         {"Shrink", shrink, twice},
                                         {"Hardmax", hardmax, twice},
                                         {"Asinh", plain<at::asinh>},
                                         {"Acosh", plain<at::acosh>},
                                         {"Atanh", plain<at::atanh>},
                                         {"BitwiseNot", plain<at::bitwise_not>}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
