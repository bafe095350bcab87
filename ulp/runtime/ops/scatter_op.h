// Attributes of scatter.
#pragma once

#include "ulp/kernels/index/scatter.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Where scatter writes, and what.
struct ScatterAttributes {
  int64_t dim = 1;  ///< of x, which the ids point into
  kernels::ScatterMode mode = kernels::ScatterMode::replace;
  float value = 0;        ///< what is written where no tensor gives it
  bool integers = false;  ///< they are joined, and a sum or product that f32 may have rounded ends the run

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "dim", .min = 1, .max = 7}, dim);
    visit({.name = "mode", .help = "What becomes of what is there"}, mode);
    visit({.name = "value", .min = -kLargestFloat, .max = kLargestFloat}, value);
    visit({.name = "integers", .help = "Sums and products that f32 may have rounded end the run"}, integers);
  }
  bool operator==(const ScatterAttributes&) const = default;
};

}  // namespace ulp::runtime
