// Attributes of concat.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Where tensors are joined.
struct ConcatAttributes {
  int64_t axis = 0;  ///< the dimension in logical order; 0: the channels

  void visit_fields(FieldVisitor& visit) { visit({.name = "axis", .min = 0, .max = 7}, axis); }
  bool operator==(const ConcatAttributes&) const = default;
};

}  // namespace ulp::runtime
