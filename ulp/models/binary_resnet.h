// Residual networks with signs (Liu et al. 2018, "Bi-Real net"): a shortcut around every binary convolution, so that
// real numbers flow from the first layer to the last; first layer, shortcuts and classifier are in float.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The defaults are binary_resnet20: the stages of resnet20 (resnet.h) with 18 binary convolutions.
struct BinaryResNetOptions {
  std::string name = "binary_resnet20";  ///< in messages
  int64_t in_channels = 3;
  int64_t num_classes = 10;
  std::vector<int64_t> widths = {16, 32,
                                 64};  ///< channels of each stage; every one but the first halves the image
  std::vector<int64_t> convolutions = {6, 6, 6};  ///< binary convolutions of each stage
  bool small_input = true;  ///< a 3x3 first convolution of stride 1; else 7x7 of stride 2 and a pooling
  /// Learned shifts before each sign, and a prelu with learned shifts behind each shortcut's sum: the blocks of ReActNet (Liu et
  /// al. 2020). Layers layer1.0.sign and layer1.0.curve then.
  bool react = false;
};

/// The network of these options. Layers conv1, bn1, layer1.0.conv, layer1.0.bn, ..., layer2.0.shortcut, fc.
ULP_API std::shared_ptr<ImageModel> make_binary_resnet20(const BinaryResNetOptions& options = {});

/// Bi-Real net 18: widths 64, 128, 256, 512 with 4 binary convolutions each.
ULP_API std::shared_ptr<ImageModel> make_birealnet(int64_t in_channels = 3, int64_t num_classes = 1000,
                                                   bool small_input = false);

}  // namespace ulp::models
