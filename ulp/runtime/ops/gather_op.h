// Attributes of gather.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// How ids pick from x.
struct GatherAttributes {
  int64_t dim = 1;        ///< of x, which the ids point into
  bool each = false;      ///< an id for each element of the result, as torch.gather; else one for a whole row
  bool from_end = false;  ///< ids below 0 count from the last row, which is -1

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "dim", .min = 1, .max = 7}, dim);
    visit({.name = "each"}, each);
    visit({.name = "from_end"}, from_end);
  }
  bool operator==(const GatherAttributes&) const = default;
};

}  // namespace ulp::runtime
