// Attributes of grid_sample.
#pragma once

#include "ulp/kernels/image/grid_sample.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// How grid_sample reads between the pixels and beyond them.
struct GridSampleAttributes {
  kernels::GridMode mode = kernels::GridMode::bilinear;
  kernels::GridBorder border = kernels::GridBorder::zeros;
  bool align_corners = false;  ///< -1 and 1 are the centres of the outer pixels, not their edges

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "mode", .help = "What stands between pixels"}, mode);
    visit({.name = "border", .help = "What stands beyond the edge"}, border);
    visit({.name = "align_corners"}, align_corners);
  }
  bool operator==(const GridSampleAttributes&) const = default;
};

}  // namespace ulp::runtime
