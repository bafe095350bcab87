// Linear layers in f32 whose weights are stored as 8- or 4-bit codes and unpacked as they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/element.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// All that stays the same from run to run.
struct WeightLinearConfig {
  int64_t in = 1, out = 1;
  int64_t group =
      1;  ///< neighbours along `in` that share a scale; even for 4 bits, the last group of a row may be cut
  int bits = 8;  ///< 8: codes are s8; 4: codes are u4, two in a byte, the even one in its low half
  Activation activation = Activation::none;  ///< after the residual
  bool residual = false;                     ///< adds f32 [rows][out]
};

/// Not owned; packed by make_weight_linear. G = ceil(in / group).
struct WeightLinearWeights {
  const void* codes = nullptr;    ///< 8 bits: int8 [out][G][group], 4 bits: uint8 [out][G][group / 2]
  const float* scale = nullptr;   ///< [out][G]
  const uint8_t* zero = nullptr;  ///< [out][G]; null: 0 for 8 bits, 8 for 4 bits
  const float* bias = nullptr;    ///< [out], may be null
  /// [out][G], of 4 bits without `zero`: each group has 0 as its zero point and this subtracted; null: none.
  const float* minimum = nullptr;
};

/// y[r][c] = activation(bias[c] + sum_k x[r][k] * w[c][k] [+ residual]) in f32, w[c][k] = (code - zero) * scale, with minima
/// code * scale - minimum (GGML's Q4_K).
///
/// Up to 5 rows of 8 bits: sums of a group are made of x * code. Those of even k begin with -zero * sum(x), those of
/// odd k with 0; both are added, multiplied by the scale and added to the bias, group by group.
///
/// Up to 5 rows of 4 bits: the inputs of a group are fixed point, the nearest multiples of a unit, which is a power of
/// two; each differs from its input by at most 1.004 * 2^-23 of the largest magnitude of the group. Multiples are three
/// digits of base 256, and the sum of each digit times code - 8 (minima: the code) is exact. The three sums are rounded
/// to f32, which changes none in groups up to 8,738, and put together from the lowest on by fused steps:
/// ((s2 * 2^16 + (s1 * 2^8 + s0)) * unit + (8 - zero) * sum(x)) * scale + what came before, then with minima
/// -sum(x) * minimum. A group with an input that is not finite makes NaN.
///
/// From 6 rows on w is rounded to f32 first, after the product and after the subtraction of a minimum; sums begin with
/// the bias and are in the order of k, as in dense layers. The portable kernels have the order of few rows for any number.
///
/// So a row has the same bits in any call of few rows and in any of many, and differs between the two by the rounding of
/// sums and of 4-bit layers' inputs. Threads change nothing. All instruction sets have the same bits for few rows, but
/// the portable kernels of 8 bits, which do not fuse.
class ULP_API WeightLinear {
 public:
  virtual ~WeightLinear() = default;
  /// Enough for fewer rows, too.
  virtual size_t workspace_bytes(int64_t rows, int workers) const = 0;
  /// x: [rows][in], y: [rows][out]. `workspace` is 64-byte aligned. No allocation.
  virtual void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
                   const Parallel& parallel) const = 0;
  virtual std::string name() const = 0;  ///< e.g. "weight4_avx512"
};

/// PrepackedWeights the codes for `isa`. Throws ulp::Error for sizes below 1, other bits, a group of 4 bits
/// that is odd or longer than 2^20, missing codes or scales, and minima of 8 bits or beside zero points.
ULP_API std::unique_ptr<WeightLinear> make_weight_linear(const WeightLinearConfig& config,
                                                         const WeightLinearWeights& weights, Isa isa);

}  // namespace ulp::kernels
