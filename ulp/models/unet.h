// U-Net (Ronneberger et al. 2015) with batch norm and same-size convolutions, for segmentation.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ULP_API UNetOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 2;
  int64_t width = 16;  ///< channels of the first level; each level below has twice as many
  int64_t depth = 3;   ///< how often the image is halved; its height and width must be multiples of 2^depth
  bool bias =
      false;  ///< of the 3x3 convolutions; batch norm makes it idle, older networks have it all the same

  /// The one of the article on mixed precision that the Spell platform published: 7,703,497 parameters
  /// (width 64, depth 3, biases, 9 classes).
  static UNetOptions spell();
};

/// Levels encoder.i (two 3x3 convolutions), bottleneck, up.i (transposed 2x2 convolution of stride 2) and
/// decoder.i (over the skip and the up-sampled channels), then the 1x1 convolution head. Returns logits (N,
/// num_classes, H, W).
ULP_API std::shared_ptr<ImageModel> make_unet(const UNetOptions& options = {});

}  // namespace ulp::models
