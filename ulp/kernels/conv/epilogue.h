// What a convolution does to an accumulator before it stores it. Plain data and functions with internal
// linkage, see common/float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/elementwise/activations.h"

namespace ulp::kernels {

/// The steps, all in float: v = float(acc) * multiplier[c] (or acc + bias[c]); v += (residual - zero) *
/// scale; v = curve(v) * to_codes where there is a curve; clamp to [lo, hi]; u8: round half to even and add
/// the output's zero point.
struct Finish {
  const void* bias = nullptr;         ///< int32 or float, one per channel; the accumulators start from it
  const float* multiplier = nullptr;  ///< integer layers only
  float lo = 0, hi = 0;               ///< in units of the output's scale, zero point not added
  int32_t output_zero = 0;
  float residual_scale = 1, residual_zero = 0;
  DataType output = DataType::f32;
  DataType residual_type = DataType::f32;
  Activation curve = Activation::none;  ///< applied to real numbers behind all else; never a clamp
  float to_codes = 1;                   ///< what a curve's result is multiplied by before it becomes a code
  // Dynamic layers, whose rows bring a scale and a zero point of their own:
  // v = float(acc - zero[row] * weight_sum[c]) * (scale[row] * multiplier[c]) + bias_f32[c].
  const int32_t* weight_sum = nullptr;
  const float* bias_f32 = nullptr;
};

/// Applies everything after the multiplier to one value and stores it at y[i], but for the curve of f32
/// results; a NaN passes the clamp of a float.
static inline void finish_store(const Finish& f, float v, const void* residual, void* y, int64_t i) {
  if (residual != nullptr) {
    v = v + (load_as_float(f.residual_type, residual, i) - f.residual_zero) * f.residual_scale;
  }
  if (f.curve != Activation::none && f.output != DataType::f32) {
    apply_curve(f.curve, &v, &v, 1);
    v *= f.to_codes;
  }
  if (f.output == DataType::u8) {
    v = v > f.lo ? v : f.lo;
    v = v < f.hi ? v : f.hi;
    static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(static_cast<int32_t>(round_even(v)) + f.output_zero);
    return;
  }
  v = v < f.lo ? f.lo : v;
  v = v > f.hi ? f.hi : v;
  if (f.output == DataType::f32) {
    static_cast<float*>(y)[i] = v;
  } else {
    static_cast<uint16_t*>(y)[i] = float_to_bf16(v);
  }
}

}  // namespace ulp::kernels
