// Attributes of select.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What select picks.
struct SelectAttributes {
  int64_t begin = 0;  ///< the index of dimension 1

  void visit_fields(FieldVisitor& visit) { visit({.name = "begin", .min = 0}, begin); }
  bool operator==(const SelectAttributes&) const = default;
};

}  // namespace ulp::runtime
