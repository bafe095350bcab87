// Attributes of group_norm.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The groups of channels, and what is added to each variance.
struct GroupNormAttributes {
  int64_t groups = 1;
  float epsilon = 0.0F;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "groups", .min = 1, .max = kMaxWindow}, groups);
    visit({.name = "epsilon", .min = 0, .max = kLargestFloat}, epsilon);
  }
  bool operator==(const GroupNormAttributes&) const = default;
};

}  // namespace ulp::runtime
