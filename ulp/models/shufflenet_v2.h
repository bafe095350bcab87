// ShuffleNet v2 (Ma et al. 2018, "ShuffleNet V2: practical guidelines for efficient CNN architecture design")
// with torchvision's layers and names.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ShuffleNetV2Options {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  bool small_input =
      false;  ///< for images under 64 pixels: the first convolution keeps the size, no first pooling
};

/// The network of width x1.0. Names: conv1.0, stage2.0.branch1.0, stage2.0.branch2.0, conv5.0, fc, ...
ULP_API std::shared_ptr<ImageModel> make_shufflenet_v2_x1_0(const ShuffleNetV2Options& options = {});

}  // namespace ulp::models
