#include "ulp/libtorch/plain_kernels.h"

#include <utility>

namespace ulp::libtorch {

namespace {

thread_local bool plain_kernels = false;

}  // namespace

PlainKernels::PlainKernels() : outer_(std::exchange(plain_kernels, true)) {}

PlainKernels::~PlainKernels() {
  plain_kernels = outer_;
}

bool PlainKernels::wanted() {
  return plain_kernels;
}

}  // namespace ulp::libtorch
