// Attributes of conv.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The window of a convolution, its groups, and what follows the sum.
struct ConvAttributes {
  Window window{};
  int64_t groups = 1;
  Activation activation = Activation::none;  ///< after bias and residual

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "window"}, window);
    visit({.name = "groups", .min = 1, .max = kMaxWindow}, groups);
    visit({.name = "activation"}, activation);
  }
  bool operator==(const ConvAttributes&) const = default;
};

}  // namespace ulp::runtime
