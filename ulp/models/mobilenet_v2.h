// MobileNetV2 (Sandler et al. 2018, "MobileNetV2: inverted residuals and linear bottlenecks") with
// torchvision's names.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct MobileNetV2Options {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  double width_mult = 1.0;   ///< scales every layer's channels, rounded to a multiple of 8
  double dropout = 0.2;      ///< before the classifier
  bool small_input = false;  ///< for images under 64 pixels: the first convolution and the first two strided
                             ///< stages keep the size
};

/// Names: features.0.0, features.1.conv.0.0, ..., classifier.1. Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_mobilenet_v2(const MobileNetV2Options& options = {});

}  // namespace ulp::models
