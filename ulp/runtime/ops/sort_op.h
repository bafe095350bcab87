// Attributes of sort.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What is sorted, and what leaves.
struct SortAttributes {
  int64_t dim = 1;
  bool descending = false;
  int64_t kept = 0;     ///< the first so many; 0: all
  bool places = false;  ///< where the elements were instead of the elements

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "dim", .min = 1, .max = 7}, dim);
    visit({.name = "descending"}, descending);
    visit({.name = "kept", .min = 0}, kept);
    visit({.name = "places"}, places);
  }
  bool operator==(const SortAttributes&) const = default;
};

}  // namespace ulp::runtime
