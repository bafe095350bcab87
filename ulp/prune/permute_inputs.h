// An order of a layer's inputs in which the pattern n:m costs less.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::prune {

/// What n:m keeps of the scores in an order of the inputs.
struct InputOrder {
  std::vector<int64_t> inputs;  ///< the input that comes at each place
  double kept_before = 0;       ///< sum of the scores that n:m keeps of the inputs as they are
  double kept = 0;              ///< and in this order; never less
};

/// Looks for an order of the inputs (dimension 1) in which keeping the best n of every m neighbours keeps a
/// larger sum of the scores: swaps of two inputs of different groups, the best one of each pair of groups, as
/// long as one gains (Pool and Yu 2021, "Channel permutations for N:M sparsity", without its escapes from
/// local optima). scores: [outputs, inputs, kernel...], not negative. At most `sweeps` times over all pairs.
/// Deterministic, one thread; a sweep costs outputs * kernel * inputs^2 / 2 group scores. Whoever makes the
/// inputs must make them in this order, and the layer's columns must be moved along: reorder_for_n_m() does that.
/// Throws ulp::Error for inputs that are no multiple of m, n that is not in [1, m), m above 16, and scores
/// that are negative or no numbers.
ULP_API InputOrder n_m_input_order(const at::Tensor& scores, int64_t n, int64_t m, int64_t sweeps = 10);

}  // namespace ulp::prune
