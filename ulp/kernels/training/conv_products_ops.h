// The table of products of the convolutions of a training step that each instruction set fills in. Plain
// data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/kernels/training/layer_product_ops.h"

namespace ulp::kernels {

/// A convolution of images that lie channels-last: a pixel is a row of numbers, one for each channel.
struct StepConv {
  int64_t in_height = 1, in_width = 1, in_channels = 1;
  int64_t out_height = 1, out_width = 1, out_channels = 1;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_height = 0, pad_width = 0;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t groups = 1;

  int64_t group_inputs() const { return in_channels / groups; }
  int64_t group_outputs() const { return out_channels / groups; }
  int64_t taps() const { return kernel_height * kernel_width; }
  /// One filter a channel.
  bool depthwise() const { return groups > 1 && groups == in_channels && groups == out_channels; }
};

/// Images of a batch: pixel p of all is at data + p * stride.
struct StepImages {
  const float* data = nullptr;
  int64_t stride = 0;
};

/// Where a forward product or the gradient of an input writes, and what it starts and ends with.
struct StepConvResult {
  float* data = nullptr;
  int64_t stride = 0;
  const float* bias = nullptr;  ///< start: the channel's; null: 0
  bool adds = false;            ///< start: what is there, without a bias
  bool relu = false;            ///< at the end: max(0, sum); a NaN passes
};

/// Each number of a result is one chain of multiply-adds with one rounding each: over the taps, row by row,
/// and for each over the channels. A tap outside the image counts as zeros (depthwise: is left out). For
/// gradients of inputs the taps are in reverse order. A gradient of a weight is one chain over the pixels of
/// a block, row by row; the blocks (conv_blocks.h) are then added in order. So every instruction set gives
/// the same bits, whoever computes which units.
struct ConvProductOps {
  /// Units [begin, end) of conv_forward_units().
  void (*forward)(const StepConv& conv, int64_t batch, const StepImages& x, const float* packed,
                  const StepConvResult& y, int64_t begin, int64_t end);
  /// Units [begin, end) of conv_input_units(): the gradient of x from that of y, or a transposed convolution.
  void (*input_gradient)(const StepConv& conv, int64_t batch, const StepImages& g, const float* packed,
                         const StepConvResult& dx, int64_t begin, int64_t end);
  /// Units [begin, end) of conv_weight_units(): the gradient in the order of pack_conv_forward(); what lies
  /// behind the last channel of a panel is not defined.
  void (*weight_gradient)(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g,
                          float* packed, int64_t begin, int64_t end);
  /// Images [begin, end); weights lie as [tap][channel], `weight_stride` apart.
  void (*depthwise_forward)(const StepConv& conv, const StepImages& x, const float* weights,
                            int64_t weight_stride, const StepConvResult& y, int64_t begin, int64_t end);
  void (*depthwise_input)(const StepConv& conv, const StepImages& g, const float* weights,
                          int64_t weight_stride, const StepConvResult& dx, int64_t begin, int64_t end);
  /// Units [begin, end) of 16 channels each.
  void (*depthwise_weight)(const StepConv& conv, int64_t batch, const StepImages& x, const StepImages& g,
                           float* weights, int64_t weight_stride, int64_t begin, int64_t end);
};

extern const ConvProductOps kConvProductOpsPortable, kConvProductOpsAvx2, kConvProductOpsAvx512;
/// The table of words of two numbers of bf16: forward and input_gradient alone.
extern const ConvProductOps kConvWordOpsAvx512Bf16;

}  // namespace ulp::kernels
