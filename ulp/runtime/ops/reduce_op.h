// Attributes of reduce, cumsum and softmax.
#pragma once

#include <vector>

#include "ulp/kernels/reduce/reduce.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// One of several dimensions, in logical order; the first, the batch, is not among them.
struct ReducedDim {
  int64_t dim = 1;

  void visit_fields(FieldVisitor& visit) { visit({.name = "dim", .min = 1, .max = 7}, dim); }
  bool operator==(const ReducedDim&) const = default;
};

/// What reduce computes, and over which dimensions.
struct ReduceAttributes {
  kernels::ReduceKind kind = kernels::ReduceKind::sum;
  std::vector<ReducedDim> dims;
  bool keepdim = false;  ///< reduced dimensions stay, with size 1
  float correction = 0;  ///< var and std divide by count - correction

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "kind", .help = "What is computed"}, kind);
    visit({.name = "dims"}, dims, ReducedDim{});
    visit({.name = "keepdim"}, keepdim);
    visit({.name = "correction", .min = -kLargestFloat, .max = kLargestFloat}, correction);
  }
  bool operator==(const ReduceAttributes&) const = default;
};

/// cumsum: along which dimension, and whether the elements are multiplied instead.
struct CumulativeAttributes {
  int64_t dim = 1;
  bool product = false;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "dim", .min = 1, .max = 7}, dim);
    visit({.name = "product"}, product);
  }
  bool operator==(const CumulativeAttributes&) const = default;
};

/// softmax: over the last axis.
struct SoftmaxAttributes {
  bool log = false;  ///< the logarithm of the result

  void visit_fields(FieldVisitor& visit) { visit({.name = "log"}, log); }
  bool operator==(const SoftmaxAttributes&) const = default;
};

}  // namespace ulp::runtime
