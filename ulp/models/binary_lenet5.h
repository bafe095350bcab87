// LeNet-5 with signs: the convolutions and fully connected layers of LeNet-5 in the widths that binary networks take,
// the first and the last one in float.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct BinaryLeNet5Options {
  int64_t in_channels = 1;
  int64_t image_size = 28;  ///< below 32 the first convolution pads by 2, as is done for 28x28 digits
  int64_t num_classes = 10;
};

/// Layers conv1 (float), conv2, fc1, fc2 (binary), fc3 (float), a batch norm behind each but the last: bn1 to bn4.
/// Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_binary_lenet5(const BinaryLeNet5Options& options = {});

}  // namespace ulp::models
