// LeNet-5 with signs: the convolutions and fully connected layers of LeNet-5 in the widths that binary networks take,
// the first and the last one in float.
#pragma once

#include <memory>

#include "ulp/models/lenet5.h"

namespace ulp::models {

/// Layers conv1 (float), conv2, fc1, fc2 (binary), fc3 (float), a batch norm behind each but the last: bn1 to bn4.
/// Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_binary_lenet5(const LeNet5Options& options = {});

}  // namespace ulp::models
