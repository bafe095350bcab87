// A multi-layer perceptron over flattened images.
#pragma once

#include <memory>
#include <vector>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The sizes of the network.
struct MlpOptions {
  int64_t in_channels = 1;
  int64_t image_size = 28;  ///< height and width
  std::vector<int64_t> hidden = {256, 128};
  int64_t num_classes = 10;
  double dropout = 0.0;  ///< after each hidden layer
};

/// Layers fc1, fc2, ...: linear and relu, the last without relu. Takes images, or rows (N, in_channels) where image_size is 1.
/// Returns (N, num_classes).
ULP_API std::shared_ptr<ImageModel> make_mlp(const MlpOptions& options = {});

}  // namespace ulp::models
