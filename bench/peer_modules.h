// Image networks of usual size that are measured beside other runtimes and are no reference networks of ulp.
#pragma once

#include <memory>

#include "ulp/models/image_model.h"

namespace ulp::bench {

/// MobileNetV3-Large of torchvision, for 1,000 classes and images [N, 3, 224, 224].
std::shared_ptr<models::ImageModel> make_mobilenet_v3();

/// EfficientNet-B0 of torchvision, likewise.
std::shared_ptr<models::ImageModel> make_efficientnet_b0();

/// ViT-tiny: patches of 16 x 16, 12 layers of width 192 with 3 heads, a class token; likewise.
std::shared_ptr<models::ImageModel> make_vit_tiny();

}  // namespace ulp::bench
