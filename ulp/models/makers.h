// Tables of reference networks by name. Internal to the room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ulp/models/registry.h"

namespace ulp::models {

/// Images below so many pixels: networks of the ImageNet kind take their small-input form.
inline constexpr int64_t kSmallInput = 64;

using Maker = std::shared_ptr<ImageModel> (*)(const ModelOptions& options);

struct NamedMaker {
  const char* name;
  Maker make;
};

/// A constant of this type adds the networks of its table to the registry before main(): a program has the
/// networks whose tables it is linked with.
class MoreModels {
 public:
  explicit MoreModels(std::span<const NamedMaker> models);
};

}  // namespace ulp::models
