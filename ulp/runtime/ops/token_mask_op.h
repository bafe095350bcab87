// Attributes of token_mask and token_mean.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Which ids are padding.
struct TokenAttributes {
  int64_t token = 0;  ///< the id that padding has

  void visit_fields(FieldVisitor& visit) { visit({.name = "token"}, token); }
  bool operator==(const TokenAttributes&) const = default;
};

}  // namespace ulp::runtime
