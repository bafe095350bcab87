// LibTorch's own kernels, where what is recorded has to be what is called.
#pragma once

#include "ulp/base/export.h"

namespace ulp::libtorch {

/// While it lives, autocast guards of this thread leave all calls to LibTorch's own kernels: what is recorded
/// has to be what is called when the record runs.
class ULP_API PlainKernels {
 public:
  PlainKernels();
  ~PlainKernels();
  PlainKernels(const PlainKernels&) = delete;
  PlainKernels& operator=(const PlainKernels&) = delete;
  /// Whether one lives on this thread.
  static bool wanted();

 private:
  bool outer_;
};

}  // namespace ulp::libtorch
