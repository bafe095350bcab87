#include "ulp/measure/peaks/caches.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace ulp::measure {

namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// "32K", "1024K", "32M".
double size_of(const std::string& text) {
  std::istringstream in(text);
  double size = 0;
  char unit = ' ';
  if (!(in >> size)) return 0;
  in >> unit;
  return unit == 'K' ? size * 1024 : unit == 'M' ? size * 1024 * 1024 : size;
}

/// Processors of a list like "0-3,8,10-11".
int count_of(const std::string& list) {
  int count = 0;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) {
    std::istringstream range(part);
    int first = 0, last = 0;
    char dash = ' ';
    if (!(range >> first)) continue;
    count += range >> dash >> last && last >= first ? last - first + 1 : 1;
  }
  return std::max(count, 1);
}

}  // namespace

std::vector<Cache> data_caches(const fs::path& folder) {
  std::vector<Cache> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string type = line_of(entry.path() / "type");
    if (type != "Data" && type != "Unified") continue;
    const Cache cache{.level = static_cast<int>(size_of(line_of(entry.path() / "level"))),
                      .bytes = size_of(line_of(entry.path() / "size")),
                      .sharers = count_of(line_of(entry.path() / "shared_cpu_list"))};
    if (cache.level > 0 && cache.bytes > 0) found.push_back(cache);
  }
  std::ranges::sort(found, {}, &Cache::level);
  if (found.empty()) {
    constexpr double kKilo = 1024, kMega = kKilo * kKilo;
    constexpr int kAll = 1 << 20;
    found = {{1, 32 * kKilo, 1}, {2, kMega, 1}, {3, 32 * kMega, kAll}};
  }
  return found;
}

double bytes_of(const Cache& cache, int threads) {
  return cache.bytes * ((threads + cache.sharers - 1) / cache.sharers);
}

}  // namespace ulp::measure
