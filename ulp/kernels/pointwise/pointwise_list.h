// The table of the functions of pointwise programs. Words of engine files, numbers of operands, checks
// and kernels follow from it; a new function is one line. Plain data: files compiled for one instruction set
// include it.
#pragma once

#include <cstdint>

// X(name, operands, value):
//   name      the enumerator and the word of programs
//   operands  how many: a, b, c
//   value     the result for floats, with the functions of kernels/pointwise/math.h. It must be plain arithmetic
//             without branches for loops over it to vectorize; calls of the C library (pow_, sin ...) do not.
// Truth is 0 or 1 on the way out and "not 0" on the way in. A NaN stays a NaN in min, max and sign. Names and
// meanings are ATen's, but for exact: it stands after arithmetic on integers and reports a result that f32 may have
// rounded, one of 2^24 or more (Pointwise::run).
#define ULP_POINTWISE(X)                                                 \
  X(add, 2, a + b)                                                       \
  X(sub, 2, a - b)                                                       \
  X(mul, 2, a* b)                                                        \
  X(div, 2, a / b)                                                       \
  X(min, 2, smaller_of(a, b))                                            \
  X(max, 2, larger_of(a, b))                                             \
  X(pow, 2, __builtin_powf(a, b))                                        \
  X(fmod, 2, __builtin_fmodf(a, b))                                      \
  X(atan2, 2, __builtin_atan2f(a, b))                                    \
  X(eq, 2, truth(a == b))                                                \
  X(ne, 2, truth(a != b))                                                \
  X(lt, 2, truth(a < b))                                                 \
  X(le, 2, truth(a <= b))                                                \
  X(gt, 2, truth(a > b))                                                 \
  X(ge, 2, truth(a >= b))                                                \
  X(logical_and, 2, truth((a != 0.0F) & (b != 0.0F)))                    \
  X(logical_or, 2, truth((a != 0.0F) | (b != 0.0F)))                     \
  X(logical_xor, 2, truth((a != 0.0F) != (b != 0.0F)))                   \
  X(where, 3, a != 0.0F ? b : c)                                         \
  X(scaled_below, 2, a > 0.0F ? a : a * b)                               \
  X(neg, 1, -a)                                                          \
  X(abs, 1, bits_to_float(float_to_bits(a) & 0x7fffffffU))               \
  X(sign, 1, a > 0.0F ? 1.0F : (a < 0.0F ? -1.0F : (a != a ? a : 0.0F))) \
  X(logical_not, 1, truth(a == 0.0F))                                    \
  X(square, 1, a* a)                                                     \
  X(reciprocal, 1, 1.0F / a)                                             \
  X(sqrt, 1, __builtin_sqrtf(a))                                         \
  X(rsqrt, 1, 1.0F / __builtin_sqrtf(a))                                 \
  X(exp, 1, exp_of(a))                                                   \
  X(expm1, 1, expm1_of(a))                                               \
  X(log, 1, log_of(a))                                                   \
  X(log1p, 1, log1p_of(a))                                               \
  X(sin, 1, __builtin_sinf(a))                                           \
  X(cos, 1, __builtin_cosf(a))                                           \
  X(tan, 1, __builtin_tanf(a))                                           \
  X(atan, 1, __builtin_atanf(a))                                         \
  X(floor, 1, __builtin_floorf(a))                                       \
  X(ceil, 1, __builtin_ceilf(a))                                         \
  X(round, 1, __builtin_rintf(a))                                        \
  X(trunc, 1, __builtin_truncf(a))                                       \
  X(relu, 1, a < 0.0F ? 0.0F : a)                                        \
  X(tanh, 1, tanh_activation(a))                                         \
  X(sigmoid, 1, sigmoid_activation(a))                                   \
  X(erf, 1, erf_of_normal(a * 1.41421356F))                              \
  X(gelu, 1, gelu_activation(a))                                         \
  X(gelu_tanh, 1, gelu_tanh_activation(a))                               \
  X(silu, 1, a* sigmoid_activation(a))                                   \
  X(softplus, 1, softplus_of(a))                                         \
  X(mish, 1, a* tanh_activation(softplus_of(a)))                         \
  X(erfc, 1, __builtin_erfcf(a))                                         \
  X(exact, 1, a)

namespace ulp::kernels {

#define ULP_ENUMERATOR(name, ...) name,
/// The rows of the table by name.
enum class PointwiseOp : uint8_t { ULP_POINTWISE(ULP_ENUMERATOR) };
#undef ULP_ENUMERATOR

#define ULP_OPERANDS(name, operands, ...) operands,
/// How many operands each row takes.
inline constexpr int kPointwiseOperands[] = {ULP_POINTWISE(ULP_OPERANDS)};
#undef ULP_OPERANDS
/// How many rows there are.
inline constexpr int kPointwiseCount = sizeof(kPointwiseOperands) / sizeof(kPointwiseOperands[0]);

/// The most inputs that a program may have.
inline constexpr int kMaxPointwiseInputs = 8;
/// The most literals that a program may have.
inline constexpr int kMaxPointwiseLiterals = 12;
/// The most functions that a program may have.
inline constexpr int kMaxPointwiseSteps = 24;

/// How many operands a function takes.
constexpr int operand_count(PointwiseOp op) {
  return kPointwiseOperands[static_cast<int>(op)];
}

}  // namespace ulp::kernels
