// The training precisions by name, as command lines and recipes spell them.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <span>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp::amp {

/// How to train in a precision; parameters and optimizer state stay fp32 in all of them.
struct Precision {
  std::string_view name;                          ///< "fp32", "bf16", "fp16"
  std::optional<c10::ScalarType> autocast_dtype;  ///< what Autocast should run in; nothing: no Autocast
  bool needs_scaler;                              ///< gradients underflow without a GradScaler
};

ULP_API std::span<const Precision> precisions();

/// The precision of that name. An unknown name is an error that lists the known ones.
ULP_API const Precision& find_precision(std::string_view name);

}  // namespace ulp::amp
