// The convolutions of a training step, forward and backward, on images that lie channels-last: products of
// windows with packed panels of weights, without scratch memory of the caller's.
#pragma once

#include "ulp/base/export.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/conv_products_ops.h"

namespace ulp::kernels {

/// The functions for an instruction set, for callers that run them many times.
ULP_API const ConvProductOps& conv_product_ops(Isa isa);
/// Those of images and weights in words of packed_product_ops(isa, true), which have forward and input_gradient alone: the
/// channels that are summed are so many words. The bits are those of conv_product_ops() of numbers rounded to bf16.
ULP_API const ConvProductOps& conv_word_ops(Isa isa);

/// Whether the kernels take the sizes: at most 256 taps and windows of at most 32768 numbers, unless it is
/// depthwise.
ULP_API bool conv_fits(const StepConv& conv);

/// How many units each product has, which may be computed in any order and by any thread.
ULP_API int64_t conv_forward_units(const StepConv& conv, int64_t batch);
ULP_API int64_t conv_input_units(const StepConv& conv, int64_t batch);
ULP_API int64_t conv_weight_units(const StepConv& conv);

/// Floats from one output channel, input channel and tap of weights to the next.
struct ConvWeightSteps {
  int64_t output = 0, input = 0, tap = 1;
};
/// Those of contiguous weights [out_channels, in_channels / groups, kernel_height, kernel_width].
ULP_API ConvWeightSteps contiguous_weight_steps(const StepConv& conv);

/// Floats of packed weights, either way.
ULP_API int64_t packed_conv_floats(const StepConv& conv);
ULP_API int64_t packed_conv_input_floats(const StepConv& conv);
/// How the channels that are summed lie in words: so many numbers of bf16 in each; 0: they are floats as they are.
struct ConvWords {
  int64_t numbers = 0;
  int64_t channels = 0;  ///< of the weights, which may end within a word
};
/// Panels of packed weights, which may be packed and unpacked in any order and by any thread.
ULP_API int64_t conv_pack_units(const StepConv& conv);
ULP_API int64_t conv_pack_input_units(const StepConv& conv);
/// The weights as the forward product reads them, the panels [begin, end) of conv_pack_units(). With words the convolution's
/// input channels are so many words; there is one group then.
ULP_API void pack_conv_forward(const StepConv& conv, const float* weights, const ConvWeightSteps& steps,
                               float* packed, int64_t begin, int64_t end, const ConvWords& words = {});
/// And as the gradient of the input reads them, of conv_pack_input_units(): with words its output channels are.
ULP_API void pack_conv_input(const StepConv& conv, const float* weights, const ConvWeightSteps& steps,
                             float* packed, int64_t begin, int64_t end, const ConvWords& words = {});
/// weights [+]= what weight_gradient() left, the panels [begin, end) of conv_pack_units().
ULP_API void unpack_conv_weights(const StepConv& conv, const float* packed, bool adds, float* weights,
                                 const ConvWeightSteps& steps, int64_t begin, int64_t end);

}  // namespace ulp::kernels
