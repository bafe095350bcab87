// Work along one dimension of a tensor of the file: picks of its elements by number, products with a stored
// matrix, the largest of several picks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

/// Which elements of a dimension are read, in order.
using Picks = std::vector<int64_t>;
/// For each tap of a window, the element of each result. Results whose window has fewer elements name one of
/// them again.
using Taps = std::vector<Picks>;

/// These elements along an axis, in a new tensor of the type and steps of `from`.
Index picked_along(Builder& builder, Index from, int64_t axis, const Picks& picks);
/// The same into a tensor that is there.
void pick_along(Builder& builder, Index from, Index to, int64_t axis, const Picks& picks);
/// result[o] = sum of matrix[o, i] from[i] along an axis; f32.
Index product_along(Builder& builder, const graph::Node& node, Index from, int64_t axis,
                    const at::Tensor& matrix);
/// The largest of the taps along an axis.
Index largest_along(Builder& builder, Index from, int64_t axis, const Taps& taps);
/// What the windows read inside of the image. Refuses windows that read nothing there.
Taps taps_of(const graph::Node& node, const Window& window);

}  // namespace ulp::exchange::tflite
