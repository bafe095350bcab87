// Runs of a network for the shapes of its values alone.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// While it lives, products of matrices and convolutions that this thread calls on the CPU give zeros in place of the
/// numbers. Their sizes, types, layouts and errors are those of LibTorch's kernels, and autograd sees the same calls.
/// Everything else is computed, and so are products of few numbers, which may be sizes. For runs of which only shapes are
/// read: the sizes that a conversion asks for.
class ULP_API ShapePropagation {
 public:
  ShapePropagation();
  ShapePropagation(const ShapePropagation&) = delete;
  ShapePropagation& operator=(const ShapePropagation&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace ulp::libtorch
