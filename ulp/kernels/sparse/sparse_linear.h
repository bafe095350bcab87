// Linear layers that leave out weights of zero: one object per layer, packed once, run many times, as conv.h has them.
//
// Blocks of 16 outputs by 4 inputs (8-bit layers) or by 1 input (f32 and bf16) serve any number of rows; a block is left
// out where all its weights are zero. A bit for each weight serves zeros that lie anywhere, 8-bit layers and few rows: it
// saves memory traffic, not products.
#pragma once

#include <memory>

#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {

/// The zeros that can be left out of a layer's weights.
struct ZeroCount {
  int64_t weights = 0, nonzero = 0;
  int64_t blocks = 0, kept = 0;  ///< blocks of the layer's element type, those at the edges among them

  /// Share of what is kept, in [0, 1].
  double weight_density() const { return static_cast<double>(nonzero) / static_cast<double>(weights); }
  double block_density() const { return static_cast<double>(kept) / static_cast<double>(blocks); }
};

/// Linear layers, and 1x1 convolutions without stride, padding and groups.
ULP_API bool is_linear(const ConvShape& shape);

/// Counts the zeros (of either sign) of a linear layer. Reads the weights once. Throws ulp::Error as make_conv() does,
/// and for a layer that is not linear.
ULP_API ZeroCount count_zeros(const ConvConfig& config, const ConvWeights& weights);

/// A layer over the blocks that are not zero, by the contract of Conv. 8-bit layers give the bits of make_conv(). So do f32
/// and bf16 ones on finite inputs where make_conv() adds one product after the other, but for the sign of a zero: they
/// skip products with zero and nothing else. An infinite input times a weight of zero is left out with its block, where
/// make_conv() gives NaN. Null where no kernel takes the layer: it is not linear, it has more than 65536 blocks in a row, or
/// make_conv() sums products of bf16 in pairs on this machine.
ULP_API std::unique_ptr<Conv> make_block_linear(const ConvConfig& config, const ConvWeights& weights,
                                                Isa isa);

/// A layer over a bit for each weight and the weights that are not zero, in d + 1/8 bytes a weight at density d; gives
/// the bits of make_conv(). Rows are taken four at a time, and each four of them read all weights. Null for a layer that is
/// not linear or not one of 8 bits.
ULP_API std::unique_ptr<Conv> make_bitmask_linear(const ConvConfig& config, const ConvWeights& weights,
                                                  Isa isa);

}  // namespace ulp::kernels
