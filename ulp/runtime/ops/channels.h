// The dimension that the ops on channels work on; it lies innermost in memory.
#pragma once

#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// 1 for an image, else the last of two or more.
inline size_t channel_axis(const StepView& view, const TensorInfo& tensor) {
  if (tensor.shape.size() == 4) {
    view.expect_image("an input", tensor);
    return 1;
  }
  if (tensor.shape.size() < 2) {
    view.fail("expected an input of at least 2 dimensions, got ", shape_text(tensor.shape));
  }
  return tensor.shape.size() - 1;
}

}  // namespace ulp::runtime
