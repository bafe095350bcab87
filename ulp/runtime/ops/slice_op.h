// Attributes of slice.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The channels that slice keeps.
struct SliceAttributes {
  int64_t begin = 0;   ///< the first channel
  int64_t length = 0;  ///< how many

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "begin", .min = 0}, begin);
    visit({.name = "length", .min = 1}, length);
  }
  bool operator==(const SliceAttributes&) const = default;
};

}  // namespace ulp::runtime
