// Functions of one number that a compiled training step knows, with their derivatives: the one table. Plain data, see
// float_bits.h for why.
#pragma once

// X(name, value, gradient): the value at x, and the gradient for x from g, that of the value, where y is the value;
// p are numbers of the call. By the functions of kernels/pointwise/math.h and elementwise/curves.h, in the order of rounding
// of LibTorch's formulas (aten/src/ATen/native/cpu/{Activation,BinaryOpsKernel}.cpp), written so that loops vectorize.
//   affine      p0 x + p1 (two roundings)        divide     x / p0
//   leaky_relu  p0: the slope                    elu        p0: alpha, p1: scale, p2: scale of the input
//   softplus    p0: beta, p1: threshold          clamp, hardtanh  p0, p1: bounds, where hardtanh alone has no gradient
#define ULP_DIFFERENTIABLE(X)                                                                            \
  X(affine, x* p[0] + p[1], g * p[0])                                                                    \
  X(divide, x / p[0], g / p[0])                                                                          \
  X(relu, (x < 0.0F ? 0.0F : x), (y <= 0.0F ? 0.0F : g))                                                 \
  X(leaky_relu, (x > 0.0F ? x : x * p[0]), (x > 0.0F ? g : g * p[0]))                                    \
  X(tanh, tanh_activation(x), g*(1.0F - y * y))                                                          \
  X(sigmoid, sigmoid_activation(x), g*(1.0F - y) * y)                                                    \
  X(gelu, gelu_activation(x), gelu_gradient(g, x))                                                       \
  X(gelu_tanh, gelu_tanh_activation(x), gelu_tanh_gradient(g, x))                                        \
  X(silu, x* sigmoid_activation(x), silu_gradient(g, x))                                                 \
  X(elu, (x > 0.0F ? x * p[1] : expm1_of(x * p[2]) * (p[0] * p[1])),                                     \
    (x > 0.0F ? g * p[1] : g * p[2] * (p[0] * p[1]) * exp_of(x * p[2])))                                 \
  X(softplus, softplus_beta(x, p[0], p[1]), (x * p[0] > p[1] ? g : g * sigmoid_activation(x * p[0])))    \
  X(exp, exp_of(x), g* y)                                                                                \
  X(log, log_of(x), g / x)                                                                               \
  X(square, x* x, g*(2.0F * x))                                                                          \
  X(abs, bits_to_float(float_to_bits(x) & 0x7fffffffU), g*(x > 0.0F ? 1.0F : (x < 0.0F ? -1.0F : 0.0F))) \
  X(sqrt, __builtin_sqrtf(x), g / (2.0F * y))                                                            \
  X(clamp, (x < p[0] ? p[0] : (x > p[1] ? p[1] : x)), (x >= p[0] ? (x <= p[1] ? g : 0.0F) : 0.0F))       \
  X(hardtanh, (x < p[0] ? p[0] : (x > p[1] ? p[1] : x)), (x <= p[0] ? 0.0F : (x >= p[1] ? 0.0F : g)))    \
  X(hardsigmoid, (x + 3.0F < 0.0F ? 0.0F : (x + 3.0F > 6.0F ? 6.0F : x + 3.0F)) / 6.0F,                  \
    (x > -3.0F ? (x < 3.0F ? g / 6.0F : 0.0F) : 0.0F))                                                   \
  X(hardswish, x*(x + 3.0F < 0.0F ? 0.0F : (x + 3.0F > 6.0F ? 6.0F : x + 3.0F)) / 6.0F,                  \
    (x <= -3.0F ? 0.0F : (x < 3.0F ? g * (x / 3.0F + 0.5F) : g)))

#include <cstdint>

namespace ulp::kernels {

#define ULP_DIFFERENTIABLE_NAME(name, ...) name,
/// The rows of the table by name.
enum class Differentiable : uint8_t { ULP_DIFFERENTIABLE(ULP_DIFFERENTIABLE_NAME) };
#undef ULP_DIFFERENTIABLE_NAME

}  // namespace ulp::kernels
