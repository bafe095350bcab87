// exp, tanh, sigmoid and gelu in plain arithmetic, written so that loops over them vectorize; without
// contraction they give the same bits on every instruction set. Functions with internal linkage, see
// float_bits.h for why.
#pragma once

#include "ulp/kernels/common/float_bits.h"

namespace ulp::kernels {

/// exp for x <= 0 to about 2 ulp: Cody-Waite reduction and a degree 6 polynomial; NaN stays. The power of two
/// comes in two halves, so that it underflows to 0 by itself: a test for it would keep the loop from
/// vectorizing.
static inline float exp_negative(float x) {
  const float bounded = x < -110.0F ? -110.0F : x;
  const float n = round_even(bounded * 1.44269504F);
  const float r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // n as an integer sits in the low bits of n + 1.5 * 2^23; with the bias of the exponent it is not negative.
  const uint32_t biased = float_to_bits(n + 12582912.0F) - 0x4b400000U + 254U;
  const uint32_t half = biased >> 1;
  return p * bits_to_float(half << 23) * bits_to_float((biased - half) << 23);
}

/// |error| <= 2^-22 (1 - e^(-2|x|) cancels near zero).
static inline float tanh_activation(float x) {
  const float magnitude = bits_to_float(float_to_bits(x) & 0x7fffffffU);
  const float e = exp_negative(-2.0F * magnitude);
  const float t = (1.0F - e) / (1.0F + e);
  return bits_to_float(float_to_bits(t) | (float_to_bits(x) & 0x80000000U));
}

/// 1 / (1 + e^-x) with the exponential of a number <= 0 on either side; |error| <= 2^-22.
static inline float sigmoid_activation(float x) {
  const float magnitude = bits_to_float(float_to_bits(x) & 0x7fffffffU);
  const float e = exp_negative(-magnitude);
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

/// erf(x / sqrt 2) as x P(x^2) / Q(x^2) on [-5.65, 5.65], where it reaches +-1 to float's precision; a
/// minimax fit with |error| <= 2.1e-8 before rounding.
static inline float erf_of_normal(float x) {
  float c = x < -5.65F ? -5.65F : x;
  c = c > 5.65F ? 5.65F : c;
  const float u = c * c;
  float p = 4.371458217633517e-08F;
  p = p * u + 1.2727133253065404e-05F;
  p = p * u + 0.0003531115362420678F;
  p = p * u + 0.009447175078094006F;
  p = p * u + 0.06930681318044662F;
  p = p * u + 0.7978844046592712F;
  float q = 1.1723020634235581e-06F;
  q = q * u + 7.590716995764524e-05F;
  q = q * u + 0.0019283771980553865F;
  q = q * u + 0.029097052291035652F;
  q = q * u + 0.25352880358695984F;
  q = q * u + 1.0F;
  float erf = c * p / q;
  erf = erf < -1.0F ? -1.0F : erf;
  return erf > 1.0F ? 1.0F : erf;
}

/// x Phi(x); |error| <= 2^-22 |x|.
static inline float gelu_activation(float x) {
  return 0.5F * x * (1.0F + erf_of_normal(x));
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); |error| <= 2^-22 |x| beside the rounding of the cube.
static inline float gelu_tanh_activation(float x) {
  const float inner = 0.7978845608028654F * (x + 0.044715F * (x * x * x));
  return 0.5F * x * (1.0F + tanh_activation(inner));
}

/// to[i] = curve(from[i]) by the formulas of base/activation.h; from and to may be the same. A clamp is no
/// curve: its results stay as they are.
static inline void apply_curve(Activation curve, const float* from, float* to, int64_t n) {
  switch (curve) {
#define ULP_CASE(name, spelling, kind, low, high, ...)             \
  case Activation::name:                                           \
    if constexpr (ActivationKind::kind == ActivationKind::curve) { \
      for (int64_t i = 0; i < n; ++i) {                            \
        const float x = from[i];                                   \
        to[i] = __VA_ARGS__;                                       \
      }                                                            \
    }                                                              \
    break;
    ULP_ACTIVATIONS(ULP_CASE)
#undef ULP_CASE
  }
}

}  // namespace ulp::kernels
