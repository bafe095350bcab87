// LibTorch's threads for the kernels, so that a process has one pool; internal to the library.
#pragma once

#include <ATen/Parallel.h>

#include "ulp/base/parallel.h"

namespace ulp::graph {

class TorchParallel final : public Parallel {
 public:
  int workers() const override { return at::get_num_threads(); }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) task(i, at::get_thread_num());
    });
  }
};

}  // namespace ulp::graph
