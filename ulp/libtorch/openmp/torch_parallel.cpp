// The one source file that is compiled with OpenMP.
#include "ulp/libtorch/torch_parallel.h"

#include <ATen/Parallel.h>

#ifndef _OPENMP
#error "at::parallel_for would run on one thread"
#endif

namespace ulp::libtorch {

void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> task) {
  at::parallel_for(begin, end, grain, [&](int64_t from, int64_t to) { task(from, to); });
}

int TorchParallel::workers() const {
  return at::get_num_threads();
}

void TorchParallel::run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const {
  parallel_for(0, tasks, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) task(i, at::get_thread_num());
  });
}

}  // namespace ulp::libtorch
