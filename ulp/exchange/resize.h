// How LibTorch resizes along one dimension, for writers whose formats do it by another rule.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Resizing along one dimension.
struct ResizeAxis {
  int64_t in = 1, out = 1;
  double factor = 0;  ///< LibTorch steps by 1 / factor; 0: by in / out
  /// The element of the input that each element of the result is by nearest; what find_picks() finds.
  std::vector<int64_t> picks = {};

  /// The same elements come from stepping by in / out.
  bool by_sizes() const;
  /// The place in the input of each element of the result, by LibTorch's rule for linear.
  std::vector<double> places(bool corners) const;
};

/// Finds what LibTorch picks for `x`, by calling it: where a factor is given, its kernels of one, two and
/// three dimensions and of either memory format do not pick the same. Sizes are numbers. `exact`: by
/// nearest-exact.
void find_picks(std::vector<ResizeAxis>& axes, const graph::Value& x, bool exact = false);

/// Linear resizing as two picks and their shares: result[i] = x[lower[i]] (1 - share[i]) + x[upper[i]]
/// share[i].
struct LinearPicks {
  std::vector<int64_t> lower, upper;
  at::Tensor share;  ///< f32 [out]
};
LinearPicks linear_picks(const ResizeAxis& axis, bool corners);

/// Resizing as a product: result[o] = sum of matrix[o, i] x[i], f64 [out, in], which LibTorch makes of unit
/// vectors, but for antialiased resizes, whose formula is written out.
at::Tensor resize_matrix(const graph::Node& node, const ResizeAxis& axis);

/// The factors of an upsample_* call for its `dims` last dimensions; 0 where it has none. Refuses factors
/// that are no constants.
std::vector<double> resize_factors(const graph::Node& node, size_t dims);

/// A factor in f32 near `wish` for which floor(in * factor) is `out`, in f32 and in f64; 0 where there is
/// none within a few of its steps.
float factor_for(double wish, int64_t in, int64_t out);

}  // namespace ulp::exchange
