// Attributes of pad.
#pragma once

#include <vector>

#include "ulp/kernels/move/pad.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What is added to one dimension; negative: cut off.
struct PadSides {
  int64_t before = 0, after = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "before", .min = -kMaxWindow, .max = kMaxWindow}, before);
    visit({.name = "after", .min = -kMaxWindow, .max = kMaxWindow}, after);
  }
  bool operator==(const PadSides&) const = default;
};

/// How an item grows.
struct PadAttributes {
  std::vector<PadSides> sides;  ///< one for each dimension behind the first
  kernels::PadMode mode = kernels::PadMode::constant;
  float value = 0;  ///< of mode constant

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "sides"}, sides, PadSides{});
    visit({.name = "mode", .help = "What stands beyond the edge"}, mode);
    visit({.name = "value", .min = -kLargestFloat, .max = kLargestFloat}, value);
  }
  bool operator==(const PadAttributes&) const = default;
};

}  // namespace ulp::runtime
