// f32 layers that multiply in bf16: faster where the processor has such products, or where weights come from memory.
#pragma once

#include <memory>

#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {

/// A layer whose input and weights are f32 and are rounded to bf16, to the nearest, ties to even: weights as they are
/// packed, inputs as a run begins. Products are summed in f32; bias, residual and output are those of `config`. Null for
/// layers of other numbers. Throws where make_conv() does.
ULP_API std::unique_ptr<Conv> make_narrow_conv(const ConvConfig& config, const ConvWeights& weights, Isa isa);

/// The error that rounding to bf16 adds to a layer: the root mean square of the change of a sum of products,
/// by that of the sum, for inputs that are independent of each other and have mean 0, whatever their scale;
/// of the output channel where it is largest. With weights w it is sqrt(sum (bf16(w) - w)^2 / sum w^2 + d^2),
/// where d = 2^-8 / sqrt(7) = 0.15 % is that of the inputs: a rounding of half a unit of 2^-7 at most, of
/// numbers whose mantissas are spread evenly over [1, 2). Infinite where a weight becomes infinite or is no
/// number. Expects a layer that make_narrow_conv() takes.
ULP_API double narrow_error(const ConvConfig& config, const ConvWeights& weights);

}  // namespace ulp::kernels
