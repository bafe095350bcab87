// Numbers that follow the sizes of the inputs, as capture takes them: seen at three sizes, and by the polynomial through them
// at others. Whether a function that computes them agrees with it there is asked of the function itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/graph/capture/capture.h"

namespace ulp::exchange {

/// A size that is free: the batch (no name), or a dimension with a name.
struct FreeAxis {
  std::string name;
  int64_t base = 0, step = 1;  ///< it is seen at base, base + step and base + 2 step
  int64_t smallest = 1, largest = 65'537;

  int64_t steps_to(int64_t size) const { return (size - base) / step; }
  /// "the batch is 6", "'time' is 1".
  std::string text_of(int64_t size) const;
};

/// Those of a model's examples that can be seen at three sizes.
std::vector<FreeAxis> free_axes(const std::vector<at::Tensor>& examples,
                                const graph::CaptureOptions& options);
/// Zeros like the examples, so many steps along the axis.
std::vector<at::Tensor> zeros_along(const std::vector<at::Tensor>& examples,
                                    const graph::CaptureOptions& options, const FreeAxis& axis,
                                    int64_t steps);
/// Some 170 sizes of the axis, small ones and those around powers of two.
std::vector<int64_t> probed_sizes(const FreeAxis& axis);

/// Numbers at the three sizes.
using SeenValue = std::array<at::Tensor, 3>;
/// Whether they are tensors of one type and shape, with numbers few enough for sizes.
bool are_alike(const SeenValue& seen);
/// Whether they differ.
bool moves(const SeenValue& seen);
/// The polynomial through them, so many steps from the first. Undefined where truth values differ, and for whole numbers that are
/// limits and no sizes.
at::Tensor extended(const SeenValue& seen, int64_t steps);
/// Whether `found` is what the polynomial says; numbers with fractions within what rounding at three sizes makes of it.
bool agrees(const at::Tensor& found, const at::Tensor& extended);

}  // namespace ulp::exchange
