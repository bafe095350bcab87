// Attributes of constant.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Which rows of its value a constant step gives.
struct ConstantAttributes {
  int64_t rows = 0;  ///< so many from the context's position on; 0: all of them

  void visit_fields(FieldVisitor& visit) { visit({.name = "rows", .min = 0}, rows); }
  bool operator==(const ConstantAttributes&) const = default;
};

}  // namespace ulp::runtime
