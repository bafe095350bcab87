// Where a tensor lies in the memory of another one.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace ulp::memory {

/// A view by sizes, strides and the distance of its first element from that of the whole.
struct Geometry {
  std::vector<int64_t> sizes, strides;
  int64_t distance = 0;
  /// The view of a tensor that has the strides of the one that it was found in.
  at::Tensor of(const at::Tensor& whole) const;
};

/// Where `part` lies within the elements of `whole`; nothing where it does not, or is of another type.
std::optional<Geometry> find_in(const at::Tensor& part, const at::Tensor& whole);

}  // namespace ulp::memory
