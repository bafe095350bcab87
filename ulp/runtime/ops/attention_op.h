// Attributes of attention.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// How the heads of an attention step look.
struct AttentionAttributes {
  int64_t heads = 1;
  float scale = 1.0F;   ///< of the products of queries and keys
  bool causal = false;  ///< query i sees keys 0 to i
  /// Above 0: the keys and values of a run stay with the context, so many rows, and its queries see those of earlier
  /// runs, too. Causal only.
  int64_t kept = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "heads", .min = 1}, heads);
    visit({.name = "scale", .min = -kLargestFloat, .max = kLargestFloat}, scale);
    visit({.name = "causal"}, causal);
    visit({.name = "kept", .min = 0}, kept);
  }
  bool operator==(const AttentionAttributes&) const = default;
};

}  // namespace ulp::runtime
