// Attributes of dynamic_linear.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What follows the product, and how its input is quantized.
struct DynamicLinearAttributes {
  Activation activation = Activation::none;
  bool per_tensor = false;  ///< one quantizer for the whole batch, else one a row

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "activation"}, activation);
    visit({.name = "per_tensor"}, per_tensor);
  }
  bool operator==(const DynamicLinearAttributes&) const = default;
};

}  // namespace ulp::runtime
