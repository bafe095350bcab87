// Runs of a network for the shapes of its values alone.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// While it lives, products of matrices and convolutions that this thread calls on the CPU give zeros in
/// place of the numbers. Their sizes, types, layouts and errors are those of LibTorch's kernels, and autograd
/// sees the same calls. Everything else is computed, and so are products of few numbers, which may be sizes.
/// For runs of which only shapes are read: the sizes that a conversion asks for. with_shapes() also serves
/// runs that may read numbers.
class ULP_API ShapePropagation {
 public:
  ShapePropagation();
  ~ShapePropagation();
  ShapePropagation(const ShapePropagation&) = delete;
  ShapePropagation& operator=(const ShapePropagation&) = delete;

  /// Whether something depended, since this one was made, on numbers that follow a product that was left
  /// out: a number that was read (`item`), sizes that follow numbers (`nonzero`), or an error of an op
  /// that had such numbers (the inverse of zeros).
  bool numbers_were_read() const;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
  bool before_;
};

/// Does the work under ShapePropagation, and once more with all numbers where something depended on numbers
/// that were left out, whether the first work came to an end or threw. Throws what the last work threw.
ULP_API void with_shapes(const std::function<void()>& work);

}  // namespace ulp::libtorch
