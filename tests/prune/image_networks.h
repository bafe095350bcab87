// The reference networks of images whose channels can be pruned.
#pragma once

#include <string>
#include <vector>

#include "ulp/models/registry.h"

namespace ulp::test {

/// All but those of signs: a channel that is left out of them is not one of zeros, whose sign is +1.
inline std::vector<std::string> models_of_numbers() {
  std::vector<std::string> names = models::model_names();
  std::erase_if(names, [](const std::string& name) {
    return name.starts_with("binary_") || name.starts_with("birealnet");
  });
  return names;
}

}  // namespace ulp::test
