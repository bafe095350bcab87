// Attributes of embedding.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Which ids embedding takes.
struct EmbeddingAttributes {
  bool from_end = false;  ///< ids below 0 count from the last row, which is -1

  void visit_fields(FieldVisitor& visit) { visit({.name = "from_end"}, from_end); }
  bool operator==(const EmbeddingAttributes&) const = default;
};

}  // namespace ulp::runtime
