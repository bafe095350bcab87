#include "ulp/kernels/isa/cpu.h"

#include <unistd.h>

namespace ulp::kernels {

int64_t second_level_cache() {
  static const int64_t bytes = [] {
    const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return known > 0 ? int64_t{known} : int64_t{512} << 10;
  }();
  return bytes;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = detect_cpu();
  return found;
}

}  // namespace ulp::kernels
