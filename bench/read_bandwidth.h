// What reading memory alone reaches, for benchmarks that are bound by it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/peak/peak.h"

namespace ulp::bench {

/// Seconds on a clock that goes on.
inline double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Bytes a second that all workers together read of arrays larger than the caches, which lie in large pages as packed weights
/// do. The best of several passes.
inline double read_bandwidth(const Parallel& parallel) {
  constexpr size_t kAll = size_t{1} << 30, kPage = size_t{2} << 20;  // caches of 260 MB are sold
  const size_t bytes = std::max(kAll / static_cast<size_t>(parallel.workers()) / kPage, size_t{64}) * kPage;
  std::vector<double*> arrays;
  for (int i = 0; i < parallel.workers(); ++i) {
    void* data = nullptr;
    if (posix_memalign(&data, kPage, bytes) != 0) std::abort();
    madvise(data, bytes, MADV_HUGEPAGE);
    std::fill_n(static_cast<double*>(data), bytes / sizeof(double), 1.0);
    arrays.push_back(static_cast<double*>(data));
  }
  double best = 1e9;
  for (int turn = 0; turn < 12; ++turn) {
    const double begin = seconds();
    parallel.run(parallel.workers(), [&](int64_t i, int) {
      kernels::memory_pass(kernels::MemoryPass::read, arrays[static_cast<size_t>(i)], nullptr, nullptr,
                           static_cast<int64_t>(bytes / sizeof(double)), kernels::selected_isa());
    });
    best = std::min(best, seconds() - begin);
  }
  for (double* array : arrays) std::free(array);
  return static_cast<double>(arrays.size() * bytes) / best;
}

}  // namespace ulp::bench
