// Attributes of depth_to_space.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Pixels that the parts of the channels become.
struct Factors {
  int64_t stride_h = 1, stride_w = 1;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "stride_h", .min = 1, .max = kMaxWindow}, stride_h);
    visit({.name = "stride_w", .min = 1, .max = kMaxWindow}, stride_w);
  }
  bool operator==(const Factors&) const = default;
};

/// The window that the parts of the channels become, and the size of the result.
struct DepthToSpaceAttributes {
  Factors window{};
  int64_t size_h = 0, size_w = 0;  ///< of the result

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "window"}, window);
    visit({.name = "size_h", .min = 1}, size_h);
    visit({.name = "size_w", .min = 1}, size_w);
  }
  bool operator==(const DepthToSpaceAttributes&) const = default;
};

}  // namespace ulp::runtime
