// LibTorch's threads for the kernels, so that a process has one pool; internal to the library.
#pragma once

#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::libtorch {

/// at::parallel_for: calls task(from, to) for pieces of [begin, end) of at least `grain`. LibTorch's is a
/// header that quietly runs everything on the calling thread where it is compiled without OpenMP; use this.
ULP_API void parallel_for(int64_t begin, int64_t end, int64_t grain,
                          FunctionRef<void(int64_t from, int64_t to)> task);

class ULP_API TorchParallel final : public Parallel {
 public:
  int workers() const override;
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override;
};

}  // namespace ulp::libtorch
