// Attributes of layer_norm.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What is added to the variance.
struct LayerNormAttributes {
  float epsilon = 0.0F;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "epsilon", .min = 0, .max = kLargestFloat}, epsilon);
  }
  bool operator==(const LayerNormAttributes&) const = default;
};

}  // namespace ulp::runtime
