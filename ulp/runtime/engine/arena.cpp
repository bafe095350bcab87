#include "ulp/runtime/engine/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ulp::runtime {
namespace {

bool together(const ArenaBuffer& a, const ArenaBuffer& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// The smallest gap that takes `bytes` between the `taken` buffers (sorted by offset), else the end of the
/// last.
size_t best_offset(std::span<const ArenaBuffer> buffers, const std::vector<size_t>& offsets,
                   std::span<const size_t> taken, size_t bytes) {
  size_t best = 0, best_gap = std::numeric_limits<size_t>::max();
  size_t end = 0;
  for (const size_t other : taken) {
    if (offsets[other] >= end + bytes && offsets[other] - end < best_gap) {
      best = end;
      best_gap = offsets[other] - end;
    }
    end = std::max(end, offsets[other] + align_up(buffers[other].bytes));
  }
  return best_gap == std::numeric_limits<size_t>::max() ? end : best;
}

}  // namespace

ArenaLayout plan_arena(std::span<const ArenaBuffer> buffers) {
  ArenaLayout layout;
  layout.offsets.resize(buffers.size());
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });

  std::vector<size_t> placed;  // sorted by offset
  std::vector<size_t> taken;
  for (const size_t index : order) {
    const ArenaBuffer& buffer = buffers[index];
    taken.clear();
    std::ranges::copy_if(placed, std::back_inserter(taken),
                         [&](size_t other) { return together(buffer, buffers[other]); });
    const size_t bytes = align_up(buffer.bytes);
    const size_t offset = best_offset(buffers, layout.offsets, taken, bytes);
    layout.offsets[index] = offset;
    layout.total = std::max(layout.total, offset + bytes);
    const auto at = std::ranges::upper_bound(placed, offset, {}, [&](size_t i) { return layout.offsets[i]; });
    placed.insert(at, index);
  }
  return layout;
}

}  // namespace ulp::runtime
