// What the implementations of Conv share; internal to the room.
#pragma once

#include <memory>

#include "ulp/kernels/common/aligned_buffer.h"
#include "ulp/kernels/conv/conv.h"
#include "ulp/kernels/conv/epilogue.h"

namespace ulp::kernels {

/// Weight `i` of a bf16 layer, which is given in bf16 or in f32.
inline uint16_t bf16_weight(const ConvWeights& weights, int64_t i) {
  return weights.bf16 != nullptr ? weights.bf16[i] : float_to_bf16(weights.f32[i]);
}

/// Throws ulp::Error for a shape that make_conv() refuses.
void check_shape(const ConvShape& shape);

/// Throws ulp::Error where make_conv() does, before anything is packed.
void check_layer(const ConvConfig& config, const ConvWeights& weights);

/// The constants of the epilogue with the memory they point to.
struct FinishData {
  AlignedBuffer bias, multiplier;
  Finish finish;
};

/// `channels` is the padded number of output channels (the rest is zero). With `fold_zero_point` the integer
/// bias becomes bias - (zx - input_offset) * sum(w), for kernels that accumulate (x - input_offset) * w instead of
/// (x - zx) * w.
FinishData make_finish(const ConvConfig& config, const ConvWeights& weights, int64_t channels,
                       bool fold_zero_point, int32_t input_offset = 0);

/// The plain C++ implementation; takes every configuration.
std::unique_ptr<Conv> make_reference_conv(const ConvConfig& config, const ConvWeights& weights);

}  // namespace ulp::kernels
