// The caches of a processor, as the system describes them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::measure {

/// One level of cache that holds data.
struct Cache {
  int level = 1;
  double bytes = 0;  ///< of one of them
  int sharers = 1;   ///< processors that share it
};

/// Data caches of the first processor, the nearest first. `folder` is where the system describes it. Where it
/// does not, sizes that most processors have: 32 KiB, 1 MiB, and 32 MiB for all.
ULP_API std::vector<Cache> data_caches(
    const std::filesystem::path& folder = "/sys/devices/system/cpu/cpu0/cache");

/// Bytes that so many threads have of this cache together, each on a processor of its own.
ULP_API double bytes_of(const Cache& cache, int threads);

}  // namespace ulp::measure
