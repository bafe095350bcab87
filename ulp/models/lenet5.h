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

/// The sizes of LeNet-5's two convolutions of 5x5, each with a pooling by 2 behind it, for an image_size.
struct LeNet5Sizes {
  int64_t padding;  ///< of the first convolution
  int64_t side;     ///< of the images behind the second pooling
};
constexpr LeNet5Sizes lenet5_sizes(int64_t image_size) {
  const int64_t padding = image_size < 32 ? 2 : 0;
  return {padding, ((image_size + 2 * padding - 4) / 2 - 4) / 2};
}

/// Layers conv1, conv2, fc1, fc2, fc3. Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_lenet5(const LeNet5Options& options = {});

}  // namespace ulp::models
