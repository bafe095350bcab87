// Attributes of resize_nearest, resize_bilinear and resize_bicubic.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The steps in the input from one pixel of the result to the next; 0: as the sizes say.
struct ResizeSteps {
  float step_h = 0, step_w = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "step_h", .min = 0, .max = kMaxWindow}, step_h);
    visit({.name = "step_w", .min = 0, .max = kMaxWindow}, step_w);
  }
  bool operator==(const ResizeSteps&) const = default;
};

/// Of resize_nearest.
struct NearestAttributes {
  int64_t size_h = 0, size_w = 0;  ///< of the result
  ResizeSteps steps{};
  bool exact = false;  ///< the pixel in which the centre lies, not the corner

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "size_h", .min = 1}, size_h);
    visit({.name = "size_w", .min = 1}, size_w);
    steps.visit_fields(visit);
    visit({.name = "exact"}, exact);
  }
  bool operator==(const NearestAttributes&) const = default;
};

/// Of resize_bilinear and resize_bicubic.
struct BilinearAttributes {
  int64_t size_h = 0, size_w = 0;  ///< of the result
  bool align_corners = false;      ///< corners stay on corners; then the steps are those of the sizes
  ResizeSteps steps{};

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "size_h", .min = 1}, size_h);
    visit({.name = "size_w", .min = 1}, size_w);
    visit({.name = "align_corners"}, align_corners);
    steps.visit_fields(visit);
  }
  bool operator==(const BilinearAttributes&) const = default;
};

}  // namespace ulp::runtime
