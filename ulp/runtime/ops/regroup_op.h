// Attributes of regroup.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Which dimensions become rows of the batch (TensorInfo::times): those before it but for the first `kept`,
/// and `joined` behind it. Without any the rows become a dimension again, with all that is behind them:
/// [times * batch, ...] -> [batch, times * rest].
struct RegroupAttributes {
  int64_t joined = 0, kept = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "joined", .min = 0, .max = 8}, joined);
    visit({.name = "kept", .min = 0, .max = 8}, kept);
  }
  bool operator==(const RegroupAttributes&) const = default;
};

}  // namespace ulp::runtime
