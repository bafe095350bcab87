#include "ulp/distributed/partition.h"

#include <algorithm>
#include <limits>

namespace ulp::distributed {

std::vector<int> best_partition(int things, int parts, JoinedCost joined, PartCost cost) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto width = static_cast<size_t>(things) + 1;
  // best[end]: of the parts so far over the things before `end`.
  std::vector<double> best(width, kNever);
  best[0] = 0;
  std::vector<std::vector<int>> begins;
  for (int part = 0; part < parts; ++part) {
    std::vector<double> next(width, kNever);
    std::vector<int>& begin_of = begins.emplace_back(width, -1);
    for (int begin = part; begin < things; ++begin) {
      const double before = best[static_cast<size_t>(begin)];
      if (before == kNever) continue;
      for (int end = begin + 1; end <= things; ++end) {
        const double own = cost(part, begin, end);
        const double all = joined == JoinedCost::sum ? before + own : std::max(before, own);
        if (all >= next[static_cast<size_t>(end)]) continue;
        next[static_cast<size_t>(end)] = all;
        begin_of[static_cast<size_t>(end)] = begin;
      }
    }
    best = std::move(next);
  }
  if (best.back() == kNever) return {};
  std::vector<int> cut(static_cast<size_t>(parts));
  for (int part = parts - 1, end = things; part >= 0; --part)
    cut[static_cast<size_t>(part)] = end = begins[static_cast<size_t>(part)][static_cast<size_t>(end)];
  return cut;
}

}  // namespace ulp::distributed
