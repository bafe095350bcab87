// Attributes of channel_shuffle.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// How many groups change places with their members.
struct ShuffleAttributes {
  int64_t groups = 1;

  void visit_fields(FieldVisitor& visit) { visit({.name = "groups", .min = 1, .max = kMaxWindow}, groups); }
  bool operator==(const ShuffleAttributes&) const = default;
};

}  // namespace ulp::runtime
