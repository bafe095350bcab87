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
};

/// y[r][c] = activation(bias[c] + sum_k x[r][k] * w[c][k] [+ residual]) with
/// w[c][k] = (float(code) - zero) * scale, the product rounded to float32. Sums are in f32, begin with the bias and are in
/// the order of k. Codes of few rows are unpacked in registers; for more rows a block of weights is unpacked once, and
/// multiplied as dense layers are. Both give the same bits.
class ULP_API WeightLinear {
 public:
  virtual ~WeightLinear() = default;
  virtual size_t workspace_bytes(int64_t rows, int workers) const = 0;
  /// x: [rows][in], y: [rows][out]. `workspace` is 64-byte aligned. No allocation.
  virtual void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
                   const Parallel& parallel) const = 0;
  virtual std::string name() const = 0;  ///< e.g. "weight4_avx512"
};

/// Packs the codes for `isa`. Throws ulp::Error for sizes below 1, other bits, an odd group of 4 bits and
/// missing codes or scales.
ULP_API std::unique_ptr<WeightLinear> make_weight_linear(const WeightLinearConfig& config,
                                                         const WeightLinearWeights& weights, Isa isa);

}  // namespace ulp::kernels
