// Attributes of attention.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// How the heads of an attention step look.
struct AttentionAttributes {
  int64_t heads = 1;
  float scale = 1.0F;   ///< of the products of queries and keys
  bool causal = false;  ///< query i sees keys 0 to i

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "heads", .min = 1}, heads);
    visit({.name = "scale", .min = -kLargestFloat, .max = kLargestFloat}, scale);
    visit({.name = "causal"}, causal);
  }
  bool operator==(const AttentionAttributes&) const = default;
};

}  // namespace ulp::runtime
