// GoogLeNet (Szegedy et al. 2015, "Going deeper with convolutions") with torchvision's layers and names.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct GoogLeNetOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  bool aux_logits = true;    ///< the classifiers aux1 (behind inception4a) and aux2 (behind inception4d)
  double dropout = 0.2;      ///< before the classifier
  double aux_dropout = 0.7;  ///< in the auxiliary ones
  bool small_input = false;  ///< for images under 64 pixels: the first convolution and pooling keep the size
};

/// Names: conv1.conv, inception3a.branch2.0.conv, aux1.fc1, fc, ... Images are taken as they come
/// (torchvision's transform_input = false). The paper weighs each auxiliary loss by 0.3.
ULP_API std::shared_ptr<AuxImageModel> make_googlenet(const GoogLeNetOptions& options = {});

}  // namespace ulp::models
