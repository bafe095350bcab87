// Functions of one and two numbers that loops of every instruction set call, beside those of
// elementwise/curves.h. Plain arithmetic where loops over it shall vectorize; the rest are the C library's.
// Functions with internal linkage, see float_bits.h for why.
#pragma once

#include "ulp/kernels/elementwise/activations.h"

namespace ulp::kernels {

/// e^x to about 2 ulp: exp_negative() for all x. Beyond 89 the result is infinite by itself.
static inline float exp_of(float x) {
  return exp_negative(x > 89.0F ? 89.0F : x);
}

/// The natural logarithm to about 2 ulp (the reduction to [sqrt(1/2), sqrt(2)) and the polynomial of degree 9
/// of Moshier's Cephes, logf): -infinity at 0, NaN below it.
static inline float log_of(float x) {
  const bool tiny = x < 1.17549435e-38F;  // also zero and what is negative; they are put right at the end
  const uint32_t bits = float_to_bits(tiny ? x * 8388608.0F : x);
  float e = static_cast<float>(static_cast<int32_t>(bits >> 23 & 0xffU) - 126) - (tiny ? 23.0F : 0.0F);
  float m = bits_to_float((bits & 0x7fffffU) | 0x3f000000U);  // in [0.5, 1)
  const bool low = m < 0.70710678F;
  e = low ? e - 1.0F : e;
  m = (low ? m + m : m) - 1.0F;
  float p = 7.0376836292e-2F;
  p = p * m - 1.1514610310e-1F;
  p = p * m + 1.1676998740e-1F;
  p = p * m - 1.2420140846e-1F;
  p = p * m + 1.4249322787e-1F;
  p = p * m - 1.6668057665e-1F;
  p = p * m + 2.0000714765e-1F;
  p = p * m - 2.4999993993e-1F;
  p = p * m + 3.3333331174e-1F;
  const float square = m * m;
  float y = p * m * square + e * -2.12194440e-4F;
  y = y - 0.5F * square;
  y = m + y + e * 0.693359375F;
  y = x > 3.4028234e38F ? x : y;  // infinity
  y = x == 0.0F ? -__builtin_inff() : y;
  return x < 0.0F ? __builtin_nanf("") : (x != x ? x : y);
}

/// log(1 + x), right also where 1 + x loses digits of x (Kahan's correction).
static inline float log1p_of(float x) {
  const float u = 1.0F + x;
  const float y = log_of(u) - ((u - 1.0F) - x) / u;
  return u > 3.4028234e38F ? u : (u == 0.0F ? -__builtin_inff() : y);
}

/// e^x - 1, right also near zero (Kahan: (u - 1) x / log u with u = e^x).
static inline float expm1_of(float x) {
  const float u = exp_of(x), d = u - 1.0F;
  const float y = d * x / log_of(u);
  return u == 1.0F ? x : (d == -1.0F || x > 20.0F ? d : y);
}

/// log(1 + e^x), as torch::softplus with beta 1: x itself above 20.
static inline float softplus_of(float x) {
  const float magnitude = x < 0.0F ? -x : x;
  const float y = (x > 0.0F ? x : 0.0F) + log1p_of(exp_negative(-magnitude));
  return x > 20.0F ? x : (x != x ? x : y);
}

/// The smaller and the larger of two numbers; a NaN wins, as in PyTorch.
static inline float smaller_of(float a, float b) {
  return a != a ? a : (b < a || b != b ? b : a);
}
static inline float larger_of(float a, float b) {
  return a != a ? a : (b > a || b != b ? b : a);
}

static inline float truth(bool value) {
  return value ? 1.0F : 0.0F;
}

}  // namespace ulp::kernels
