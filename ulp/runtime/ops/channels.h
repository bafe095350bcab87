// The dimension that the ops on channels work on; it lies innermost in memory.
#pragma once

#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// 1 for an image or a volume, else the last of two or more.
inline size_t channel_axis(const StepView& view, const TensorInfo& tensor) {
  if (tensor.layout == Layout::nhwc) return 1;
  if (tensor.shape.size() == 4) view.expect_image("an input", tensor);
  if (tensor.shape.size() < 2) {
    view.fail("expected an input of at least 2 dimensions, got ", shape_text(tensor.shape));
  }
  return tensor.shape.size() - 1;
}

/// Input 0 as rows of channels.
struct ChannelRows {
  explicit ChannelRows(const StepView& view)
      : x(view.input()), channels(x.shape[channel_axis(view, x)]), size(element_bytes(x.type)) {}
  int64_t count(int64_t batch) const { return element_count(x, batch) / channels; }

  TensorInfo x;
  int64_t channels, size;  ///< of a row, and bytes of an element
};

/// For ops that move bytes: an output of the input's numbers and layout.
inline void check_moved(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

}  // namespace ulp::runtime
