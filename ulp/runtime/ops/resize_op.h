// Attributes of resize_nearest and resize_bilinear.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Of resize_nearest.
struct NearestAttributes {
  int64_t size_h = 0, size_w = 0;  ///< of the result

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "size_h", .min = 1}, size_h);
    visit({.name = "size_w", .min = 1}, size_w);
  }
  bool operator==(const NearestAttributes&) const = default;
};

/// Of resize_bilinear.
struct BilinearAttributes {
  int64_t size_h = 0, size_w = 0;  ///< of the result
  bool align_corners = false;      ///< corners stay on corners

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "size_h", .min = 1}, size_h);
    visit({.name = "size_w", .min = 1}, size_w);
    visit({.name = "align_corners"}, align_corners);
  }
  bool operator==(const BilinearAttributes&) const = default;
};

}  // namespace ulp::runtime
