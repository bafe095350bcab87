// Functions of one tensor, element by element: activations above all.
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"

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

void prelu(Call& call) {
  const Tensor x = call.x(0);
  Tensor slope = call.x(1);
  // One slope a channel as [C, 1, ...], or one for all.
  const bool flat = slope.numel() == 1 || (x.dim() >= 2 && slope.numel() == x.size(1));
  if (flat && slope.dim() != 1) slope = at::reshape(slope, {-1});
  const bool channels =
      slope.dim() == 1 && (slope.numel() == 1 || (x.dim() >= 2 && slope.numel() == x.size(1)));
  if (channels) return call.set(at::prelu(x, slope));
  call.set(at::add(at::relu(x), at::mul(slope, at::clamp_max(x, 0))));
}

void clip(Call& call) {
  const Tensor x = call.x(0);
  const auto bound = [&](size_t i, const char* name) -> std::optional<at::Scalar> {
    if (call.has(i)) return call.number(i);
    if (!call.has_attribute(name)) return std::nullopt;
    return call.attribute(name, 0.0);
  };
  const auto low = bound(1, "min"), high = bound(2, "max");
  if (!low && !high) return call.set(x);
  if (low && high && low->toDouble() == 0 && high->toDouble() == 6) return call.set(at::relu6(x));
  call.set(at::clamp(x, low, high));
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

void cast(Call& call) {
  const at::ScalarType type = scalar_type(call.attribute("to", int64_t{0}), call.node().label());
  const Tensor x = call.x(0);
  call.set(x.scalar_type() == type ? x : x.to(type));
}

void cast_like(Call& call) {
  const Tensor x = call.x(0);
  const at::ScalarType type = call.x(1).scalar_type();
  call.set(x.scalar_type() == type ? x : x.to(type));
}

void is_inf(Call& call) {
  if (call.attribute("detect_negative", int64_t{1}) == 0 ||
      call.attribute("detect_positive", int64_t{1}) == 0)
    call.refuse("expected to detect both infinities");
  call.set(at::isinf(call.x(0)));
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
                                         {"Cast", cast},
                                         {"CastLike", cast_like}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
