#include "ulp/runtime/engine/arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"

namespace ulp::runtime {
namespace {

using testing::Random;

std::vector<ArenaBuffer> random_buffers(Random& random) {
  const int64_t steps = random.integer(1, 60);
  std::vector<ArenaBuffer> buffers(static_cast<size_t>(random.integer(1, 80)));
  for (ArenaBuffer& buffer : buffers) {
    buffer.bytes = static_cast<size_t>(random.integer(0, random.chance(20) ? 1 << 20 : 5000));
    buffer.first = static_cast<int>(random.integer(0, steps));
    buffer.last = buffer.first + static_cast<int>(random.integer(0, random.chance(20) ? steps : 3));
  }
  return buffers;
}

/// The most bytes alive at one step: no layout can be smaller.
size_t live_bytes(const std::vector<ArenaBuffer>& buffers) {
  size_t most = 0;
  for (const ArenaBuffer& at : buffers) {
    size_t sum = 0;
    for (const ArenaBuffer& b : buffers) {
      if (b.first <= at.first && at.first <= b.last) sum += align_up(b.bytes);
    }
    most = std::max(most, sum);
  }
  return most;
}

TEST(Arena, NoTwoLiveBuffersOverlap) {
  double worst = 1, sum_of_ratios = 0;
  constexpr int kRounds = 500;
  for (uint64_t seed = 1; seed <= kRounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const std::vector<ArenaBuffer> buffers = random_buffers(random);
    const ArenaLayout layout = plan_arena(buffers);
    ASSERT_EQ(layout.offsets.size(), buffers.size());
    size_t sum = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      sum += align_up(buffers[i].bytes);
      EXPECT_EQ(layout.offsets[i] % kArenaAlignment, 0U);
      ASSERT_LE(layout.offsets[i] + buffers[i].bytes, layout.total);
      for (size_t j = 0; j < i; ++j) {
        const bool alive_together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = layout.offsets[i] + buffers[i].bytes <= layout.offsets[j] ||
                           layout.offsets[j] + buffers[j].bytes <= layout.offsets[i];
        ASSERT_TRUE(!alive_together || apart) << i << " and " << j;
      }
    }
    EXPECT_LE(layout.total, sum);
    const size_t bound = live_bytes(buffers);
    EXPECT_GE(layout.total, bound);
    const double ratio = bound == 0 ? 1.0 : static_cast<double>(layout.total) / static_cast<double>(bound);
    worst = std::max(worst, ratio);
    sum_of_ratios += ratio;
  }
  EXPECT_LT(sum_of_ratios / kRounds, 1.05) << "mean distance from the largest live set";
  EXPECT_LT(worst, 1.5);
}

TEST(Arena, AChainNeedsItsTwoLargestNeighbours) {
  std::vector<ArenaBuffer> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({static_cast<size_t>(640 * (i + 1)), i, i + 1});
  EXPECT_EQ(plan_arena(chain).total, 640U * 19);
}

TEST(Arena, NothingNeedsNothing) {
  EXPECT_EQ(plan_arena({}).total, 0U);
  const ArenaBuffer empty[] = {{0, 0, 5}, {0, 2, 3}};
  EXPECT_EQ(plan_arena(empty).total, 0U);
}

}  // namespace
}  // namespace ulp::runtime
