// LeNet-5 (LeCun et al. 1998, "Gradient-based learning applied to document recognition") with relu and
// max-pooling.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct LeNet5Options {
  int64_t in_channels = 1;
  int64_t image_size = 28;  ///< below 32 the first convolution pads by 2, as is done for 28x28 digits
  int64_t num_classes = 10;
};

/// Layers conv1, conv2, fc1, fc2, fc3. Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_lenet5(const LeNet5Options& options = {});

}  // namespace ulp::models
