// Attributes of move_batch.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Where move_batch puts the batch: from another dimension to the first, or from the first to another.
struct MoveBatchAttributes {
  int64_t to = 0;  ///< the dimension that it has in the result

  void visit_fields(FieldVisitor& visit) { visit({.name = "to", .min = 0}, to); }
  bool operator==(const MoveBatchAttributes&) const = default;
};

}  // namespace ulp::runtime
