// Convolutions and linear layers of numbers that are +1 or -1, packed as bits: one object per layer, packed once, run many
// times, as conv.h has them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ulp/base/enum_names.h"
#include "ulp/kernels/binary/pack_signs.h"
#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {

/// Channels of a window, those that fill its last bytes among them: twice their number stays in int32.
inline constexpr int64_t kMostBinaryWindow = (int64_t{1} << 30) - 8;

/// The padding around the image.
enum class BinaryPadding : uint8_t {
  one,  ///< pixels of +1
  zero  ///< pixels that add nothing
};

/// All that stays the same from run to run.
struct BinaryConvConfig {
  ConvShape shape;  ///< in channels, not bytes; groups are 1
  BinaryPadding padding = BinaryPadding::one;
  Activation activation = Activation::none;  ///< of f32 results
  bool residual = false;                     ///< adds f32 of the output's shape to f32 results
  bool scale_map = false;  ///< the scale has a number for each output element, else one for each channel
};

/// In logical order, not owned. With `threshold` the results are bits, else f32.
struct BinaryConvWeights {
  const uint8_t* bits = nullptr;  ///< [out_channels][kernel_h][kernel_w][bit_bytes(in_channels)], 1 for -1
  const float* scale = nullptr;   ///< [out_channels] or [out_channels][out_h][out_w]
  const float* bias = nullptr;    ///< [out_channels], may be null
  const int32_t* threshold = nullptr;  ///< [out_channels]
  const uint8_t* flip = nullptr;       ///< bit_bytes(out_channels), may be null; with a threshold only
};

/// A layer by the contract of Conv. x holds bit_bytes(in_channels) bytes a pixel, as pack_signs() writes them: the bits behind
/// the last channel are 0 (other bits there change sums, nothing else; those of the weights are left out). With
/// dot = sum x * w, exact in int32, over the kernel's window:
///   f32:  y = activation(scale * float(dot) + bias + residual), each product and sum rounded on its own
///   bits: bit o = !(dot >= threshold[o]) ^ flip[o], bit_bytes(out_channels) bytes a pixel, 0 behind the last channel
/// Every instruction set gives the same bits. Throws ulp::Error where make_conv() does, for groups, for more than
/// kMostBinaryWindow channels in a window, and for a bias, residual or activation with thresholds.
ULP_API std::unique_ptr<Conv> make_binary_conv(const BinaryConvConfig& config,
                                               const BinaryConvWeights& weights, Isa isa);

/// Makes the layer of 8-bit products (make_conv()), which takes eight times the memory for its weights and
/// unpacks its input as it runs: for machines that multiply bytes faster than they count bits. The same bits.
/// Null for windows of more than 2^24 channels.
ULP_API std::unique_ptr<Conv> make_binary_as_bytes(const BinaryConvConfig& config,
                                                   const BinaryConvWeights& weights, Isa isa);

/// The most memory that make_binary_conv() takes for a layer that it does not refuse.
ULP_API int64_t binary_conv_bytes(const BinaryConvConfig& config);

}  // namespace ulp::kernels

namespace ulp {
template <>
struct EnumNames<kernels::BinaryPadding> {
  static constexpr auto list = std::to_array<Word<kernels::BinaryPadding>>(
      {{kernels::BinaryPadding::one, "one", "pixels of +1"},
       {kernels::BinaryPadding::zero, "zero", "they add nothing"}});
};
}  // namespace ulp
