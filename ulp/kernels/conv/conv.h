// Convolution and linear layers on raw NHWC buffers: one object per layer, packed once, run many times.
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

/// Shape of one convolution; a linear layer is a 1x1 convolution over a 1x1 image with `batch` rows.
struct ConvShape {
  int64_t in_h = 1, in_w = 1, in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;  ///< on both sides; padded with zero, or with the input's zero point
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;

  int64_t out_h() const { return (in_h + 2 * pad_h - dilation_h * (kernel_h - 1) - 1) / stride_h + 1; }
  int64_t out_w() const { return (in_w + 2 * pad_w - dilation_w * (kernel_w - 1) - 1) / stride_w + 1; }
};

/// All that stays the same from run to run. Combinations that exist:
///   input f32,  weight f32, output f32 or bf16
///   input bf16, weight bf16 (or f32, rounded when packed), accumulation f32, output bf16 or f32
///   input u8,   weight i8 symmetric per output channel, accumulation i32, output u8 (requantized) or f32
struct ConvConfig {
  ConvShape shape;
  DataType input = DataType::f32;
  DataType output = DataType::f32;
  Activation activation = Activation::none;
  bool residual = false;  ///< adds a tensor of the output's shape; f32, bf16 or u8 as `residual_type` says
  DataType residual_type = DataType::f32;
  Affine input_q, output_q, residual_q;  ///< used where the element type is u8
};

/// Weights in logical order, not owned: [out_channels][in_channels / groups][kernel_h][kernel_w].
struct ConvWeights {
  const float* f32 = nullptr;         ///< for f32 layers, and for bf16 ones without `bf16`
  const uint16_t* bf16 = nullptr;     ///< for bf16 layers
  const int8_t* i8 = nullptr;         ///< for u8 layers
  const float* scale = nullptr;       ///< i8: one scale per output channel
  const float* bias = nullptr;        ///< f32 / bf16: one per output channel, may be null
  const int32_t* bias_i32 = nullptr;  ///< u8: scale input_q.scale * scale[c], zero point 0; may be null
};

/// The share of a layer's products and of its bytes of weights that a run touches, in [0, 1].
struct Density {
  double products = 1, bytes = 1;
};

/// A layer ready to run. The 8-bit contract: acc = bias_i32[c] + sum (x - zx) * w, exact in int32;
/// y = float(acc) * (sx * sw[c]) as multiplier m[c] = sx * sw[c] / sy (float32) [+ (r - zr) * (sr / sy)],
/// activation, round half to even, + zy, clamp to [0, 255]. A curve is applied to v = float(acc) * (sx * sw[c]) [+
/// (r - zr) * sr], and its result times float(1 / sy) is rounded. Every instruction set gives the same bits; the product and the sum of the
/// residual are rounded one after the other (no fused multiply-add).
class ULP_API Conv {
 public:
  virtual ~Conv() = default;
  /// Bytes of scratch that run() needs for this batch and this many workers; 64-byte aligned by the caller.
  /// Never less for a larger batch or more workers, so that the largest case serves all.
  virtual size_t workspace_bytes(int64_t batch, int workers) const = 0;
  /// x: [batch, in_h, in_w, in_channels], y: [batch, out_h, out_w, out_channels], both dense NHWC. No
  /// allocation.
  virtual void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
                   const Parallel& parallel) const = 0;
  /// The implementation chosen, e.g. "conv_u8_avx512_vnni".
  virtual std::string name() const = 0;
  /// Less than all where zeros are left out or a way of computing has fewer products, in a run of this batch.
  virtual Density density(int64_t /*batch*/) const { return {}; }
};

/// PrepackedWeights the weights for `isa` and returns the first implementation in that instruction set's
/// order that takes the configuration; the plain C++ reference is last and takes all. Throws ulp::Error on a
/// shape that has no output or on a combination of element types not listed above.
ULP_API std::unique_ptr<Conv> make_conv(const ConvConfig& config, const ConvWeights& weights, Isa isa);

}  // namespace ulp::kernels
