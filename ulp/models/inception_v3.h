// Inception v3 (Szegedy et al. 2016, "Rethinking the inception architecture for computer vision") with
// torchvision's layers and names.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct InceptionV3Options {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  bool aux_logits = true;  ///< the classifier AuxLogits (behind Mixed_6e)
  double dropout = 0.5;    ///< before the classifier
  bool small_input =
      false;  ///< for images under 75 pixels: the stem is padded, starts with stride 1 and pools once
};

/// The smallest image side of the form that is not small_input; forward_with_aux() wants 299, the paper's
/// size, or a little less.
inline constexpr int64_t kInceptionV3SmallestSide = 75;

/// Names: Conv2d_1a_3x3.conv, Mixed_5b.branch1x1.conv, AuxLogits.fc, fc, ... Images are taken as they come
/// (torchvision's transform_input = false). torchvision's training weighs the auxiliary loss by 0.4.
ULP_API std::shared_ptr<AuxImageModel> make_inception_v3(const InceptionV3Options& options = {});

}  // namespace ulp::models
