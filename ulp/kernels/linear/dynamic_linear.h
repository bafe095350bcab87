// Linear layers with int8 weights whose float inputs are quantized on the fly: no calibration.
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

/// The quantizer of values in [min, max] (min <= 0 <= max) as u8 codes. In double precision, as PyTorch's
/// dynamic layers do: scale = (max - min) / 255, zero point = -min / scale, rounded half to even, before the
/// scale is rounded to float32. Unlike theirs, small scales stay as they are (they
/// raise them to 6.1e-5); all zeros give scale 1.
ULP_API Affine dynamic_affine(float min, float max);

/// The largest number of input features: a product of codes is at most 255 * 128 in magnitude, and the int32
/// sum of 2^16 of them still fits, 65,536 * 255 * 128 < 2^31.
inline constexpr int64_t kMaxDynamicFeatures = int64_t{1} << 16;

/// All that stays the same from run to run.
struct DynamicLinearConfig {
  int64_t in = 1, out = 1;                   ///< features; in <= kMaxDynamicFeatures
  Activation activation = Activation::none;  ///< after the residual
  bool residual = false;                     ///< adds f32 [rows][out]
  bool per_tensor = false;                   ///< one quantizer for all rows of a run, else one for each row
};

/// Not owned; packed by make_dynamic_linear.
struct DynamicLinearWeights {
  const int8_t* codes = nullptr;  ///< [out][in]
  const float* scale = nullptr;   ///< [out], symmetric
  const float* bias = nullptr;    ///< [out], may be null
};

/// y[r][c] = activation(float(sum_k (q[r][k] - z[r]) w[c][k]) * (s[r] * scale[c]) + bias[c] [+ residual]),
/// q[r][k] = clamp(round(x[r][k] * (1 / s[r])) + z[r], 0, 255) half to even, (s, z) = dynamic_affine of the
/// row's (or all rows') bounds with zero. The sum is exact in int32, and what follows is rounded operation by
/// operation: the same bits on every instruction set. A row with a NaN or an infinity gives NaN (per tensor:
/// every row does).
class ULP_API DynamicLinear {
 public:
  virtual ~DynamicLinear() = default;
  /// Bytes of scratch for run(), 64-byte aligned by the caller; never less for more rows or workers.
  virtual size_t workspace_bytes(int64_t rows, int workers) const = 0;
  /// x: [rows][in], y: [rows][out]. No allocation.
  virtual void run(int64_t rows, const float* x, const float* residual, float* y, void* workspace,
                   const Parallel& parallel) const = 0;
  virtual std::string name() const = 0;  ///< e.g. "dynamic_u8_avx512_vnni"
};

/// PrepackedWeights the weights for `isa`; the plain C++ reference serves portable. Throws ulp::Error for
/// sizes outside [1, kMaxDynamicFeatures] of `in` and [1, 2^24] of `out`, and for missing weights.
ULP_API std::unique_ptr<DynamicLinear> make_dynamic_linear(const DynamicLinearConfig& config,
                                                           const DynamicLinearWeights& weights, Isa isa);

}  // namespace ulp::kernels
