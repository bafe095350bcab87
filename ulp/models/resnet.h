// Residual networks (He et al. 2015, "Deep residual learning for image recognition"; Xie et al. 2017,
// "Aggregated residual transformations for deep neural networks"): the ImageNet form with torchvision's
// layers and names, and the small form for 32x32 images.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// resnet18, resnet50 and resnext50_32x4d. Names: conv1, bn1, layer1.0.conv1, layer2.0.downsample.0, fc, ...
struct ResNetOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  bool small_input =
      false;  ///< for images under 64 pixels: a 3x3 first convolution of stride 1, no first pooling
};

/// Basic blocks: 2, 2, 2, 2.
ULP_API std::shared_ptr<ImageModel> make_resnet18(const ResNetOptions& options = {});
/// Bottlenecks: 3, 4, 6, 3.
ULP_API std::shared_ptr<ImageModel> make_resnet50(const ResNetOptions& options = {});
/// resnet50 whose 3x3 convolutions have 32 groups of 4 channels, and of 8, 16 and 32 in the later stages.
ULP_API std::shared_ptr<ImageModel> make_resnext50_32x4d(const ResNetOptions& options = {});

/// The form of section 4.2 of the paper, with projections where the shape changes. The defaults are resnet20
/// with 272,474 parameters; fewer blocks or a stem stride of 2 make it faster.
struct ResNet20Options {
  std::string name = "resnet20";  ///< in messages
  int64_t in_channels = 3;
  int64_t num_classes = 10;
  std::vector<int64_t> widths = {16, 32,
                                 64};  ///< channels of each stage; every stage but the first halves the image
  std::vector<int64_t> blocks = {3, 3, 3};  ///< residual blocks of each stage
  int64_t stem_stride = 1;                  ///< stride of the first convolution
};

/// The network of these options.
ULP_API std::shared_ptr<ImageModel> make_resnet20(const ResNet20Options& options = {});

}  // namespace ulp::models
