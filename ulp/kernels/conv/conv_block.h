// A convolution with the 1x1 layers around it, run some rows of the image at a time.
#pragma once

#include <memory>
#include <span>

#include "ulp/base/export.h"
#include "ulp/kernels/conv/conv.h"

namespace ulp::kernels {

/// A layer of a block, not owned.
struct BlockLayer {
  ConvConfig config;
  ConvWeights weights;
};

/// One layer out of two or three, each of which reads what the one before writes: [1x1,] window, 1x1. The 1x1 ones have no
/// stride, padding and groups; the one with a window is depthwise, or has no groups. No residual but that of the last one. A
/// few rows pass through all layers before the next ones do, so that what lies between two layers stays in the second-level
/// cache and is never written to memory. The results are those of the layers one by one, bit for bit.
///
/// Many workers on few images share out rows, and each computes those at its borders again; where that is too much, the layers
/// run one by one.
///
/// Null where the layers are not so, and where a kernel for `isa` does not run by rows. Throws ulp::Error as make_conv() does.
ULP_API std::unique_ptr<Conv> make_conv_block(std::span<const BlockLayer> layers, Isa isa);

/// Makes the layers one by one, each over all images: what a block is measured against. Throws ulp::Error as
/// make_conv() does.
ULP_API std::unique_ptr<Conv> make_layers_apart(std::span<const BlockLayer> layers, Isa isa);

}  // namespace ulp::kernels
