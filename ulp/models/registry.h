// The reference networks by name, as the command-line tool and the tests make them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// What a network must know of the data. Networks of the ImageNet kind take their small-input form below 64
/// pixels.
struct ModelOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 10;
  int64_t image_size = 32;  ///< height and width in pixels
};

/// Throws Error for a name that model_names() does not list, and for options the network cannot have.
ULP_API std::shared_ptr<ImageModel> make_model(const std::string& name, const ModelOptions& options = {});

/// Sorted: lenet5, mlp, mobilenet_v2, resnet14 (resnet20's form, wide and early halved: the demo's),
/// resnet18, resnet20, resnet50, unet.
ULP_API std::vector<std::string> model_names();

}  // namespace ulp::models
