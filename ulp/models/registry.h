// The reference networks by name, as the command-line tool and the tests make them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/models/image_model.h"

namespace ulp::models {

/// The properties of the data that a network needs. Networks of the ImageNet kind take their small-input form
/// below 64 pixels (inception_v3: below 75).
struct ModelOptions {
  int64_t in_channels = 3;
  int64_t num_classes = 10;
  int64_t image_size = 32;  ///< height and width in pixels
};

/// Throws Error for a name that model_names() does not list, and for options the network cannot have.
/// googlenet and inception_v3 come without their auxiliary classifiers, which forward() does not use.
ULP_API std::shared_ptr<ImageModel> make_model(const std::string& name, const ModelOptions& options = {});

/// Whether the network gives one result of (N, num_classes); unet gives a class for each pixel. `name` is one
/// of model_names().
ULP_API bool is_classifier(const std::string& name);

/// Sorted. The name is that of the make_ function; resnet14 is resnet20's form, wide and early halved: the
/// demo's.
ULP_API std::vector<std::string> model_names();

}  // namespace ulp::models
