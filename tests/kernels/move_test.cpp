// Strided copies and borders against plain loops.
#include "ulp/kernels/move/move.h"

#include <map>

#include "error_of.h"
#include "helpers.h"
#include "ulp/kernels/move/pad.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

/// y in the plainest form.
template <typename T>
std::vector<T> moved(const std::vector<MoveDimension>& dimensions, int64_t offset, int64_t item,
                     const std::vector<T>& x, int64_t batch) {
  std::vector<T> y;
  int64_t count = 1;
  for (const MoveDimension& d : dimensions) count *= d.size;
  for (int64_t i = 0; i < batch * count; ++i) {
    int64_t from = i / count * item + offset, left = i % count;
    for (size_t d = dimensions.size(); d-- > 0; left /= dimensions[d].size) {
      from += left % dimensions[d].size * dimensions[d].stride;
    }
    y.push_back(x[static_cast<size_t>(from)]);
  }
  return y;
}

struct MoveCase {
  std::vector<MoveDimension> dimensions;
  const char* kernel;
};

/// What the offset has to be, and the elements that an item needs.
std::pair<int64_t, int64_t> range_of(const std::vector<MoveDimension>& dimensions) {
  int64_t low = 0, high = 0;
  for (const MoveDimension& d : dimensions) (d.stride < 0 ? low : high) += (d.size - 1) * d.stride;
  return {-low, high - low + 1};
}

const MoveCase kMoveCases[] = {{{}, "copy"},
                               {{{1, 7}, {1, 0}}, "copy"},
                               {{{100, 1}}, "copy"},
                               {{{6, 20}, {20, 1}}, "copy"},
                               {{{6, 40}, {20, 1}}, "copy"},
                               {{{5, 0}, {33, 1}}, "copy"},
                               {{{4, 100}, {3, 25}, {5, 5}, {2, 1}}, "copy"},
                               {{{33, 1}, {70, 33}}, "transpose"},
                               {{{3, 1}, {1000, 3}}, "transpose"},
                               {{{7, 1}, {5, 21}, {3, 7}}, "transpose"},
                               {{{9, 40}, {2, 1}, {20, 2}}, "transpose"},
                               {{{600, 1}, {500, 600}}, "transpose"},
                               {{{4, 300}, {10, 1}, {6, 50}, {5, 10}}, "transpose"},
                               {{{3, 1}, {40, 0}}, "gather"},
                               {{{50, -1}}, "gather"},
                               {{{30, 0}, {7, 0}}, "gather"},
                               {{{30, 2}}, "gather"},
                               {{{5, -60}, {10, 6}, {3, 2}}, "gather"},
                               {{{9, 12}, {24, 5}}, "gather"}};

template <typename T>
void check(const MoveCase& c) {
  const auto [offset, item] = range_of(c.dimensions);
  for (const int64_t batch : {1, 3, 17}) {
    const std::vector<T> x = random_ints<T>(batch * (item + 2), 1, 0, 250);
    const std::vector<T> expected = moved(c.dimensions, offset + 1, item + 2, x, batch);
    const Move move(sizeof(T), c.dimensions, offset + 1, item + 2);
    EXPECT_EQ(move.kernel(), c.kernel);
    for (const int workers : {1, 3}) {
      Guarded<T> y(static_cast<int64_t>(expected.size()));
      move.run(x.data(), y.data(), batch, ThreadParallel(workers));
      EXPECT_EQ(y.values(), expected) << "case " << &c - kMoveCases << ", batch " << batch;
      EXPECT_TRUE(y.intact());
    }
  }
}

TEST(Move, EveryKindEqualsPlainLoops) {
  SCOPED_TRACE(repeat_command());
  for (const MoveCase& c : kMoveCases) {
    check<uint8_t>(c);
    check<uint16_t>(c);
    check<uint32_t>(c);
    check<uint64_t>(c);
  }
}

TEST(Move, RandomStridesEqualPlainLoops) {
  SCOPED_TRACE(repeat_command());
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) {
    return int64_t{std::uniform_int_distribution<int>(low, high)(random)};
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<MoveDimension> dimensions;
    for (int64_t d = draw(1, 5); d > 0; --d) dimensions.push_back({draw(1, 9), draw(-12, 12)});
    const auto [offset, item] = range_of(dimensions);
    const std::vector<uint32_t> x = random_ints<uint32_t>(4 * item, 2, 0, 1 << 30);
    const Move move(4, dimensions, offset, item);
    std::vector<uint32_t> expected = moved(dimensions, offset, item, x, 4), y(expected.size());
    move.run(x.data(), y.data(), 4, ThreadParallel(2));
    ASSERT_EQ(y, expected) << "round " << round;
  }
}

TEST(Move, RefusesOtherElements) {
  EXPECT_ERROR(Move(3, {}, 0, 1), "1, 2, 4 or 8 bytes, got 3");
  EXPECT_ERROR(Pad(8, {}, PadMode::constant, 0), "1, 2 or 4 bytes, got 8");
}

template <typename T>
void check_pad(const std::vector<PadDimension>& dimensions, PadMode mode, T number) {
  std::vector<int64_t> in, out;
  int64_t in_count = 1, out_count = 1;
  for (const PadDimension& d : dimensions) {
    in_count *= d.size;
    out_count *= d.size + d.before + d.after;
  }
  constexpr int64_t kBatch = 5;
  const std::vector<T> x = random_ints<T>(kBatch * in_count, 3, 0, 250);
  std::vector<T> expected;
  for (int64_t i = 0; i < kBatch * out_count; ++i) {
    int64_t from = 0, step = 1, left = i;
    bool inside = true;
    for (size_t d = dimensions.size(); d-- > 0;) {
      const auto [size, before, after] = dimensions[d];
      const int64_t at = pad_source(dimensions[d], mode, left % (size + before + after));
      left /= size + before + after;
      inside = inside && at >= 0;
      from += at * step;
      step *= size;
    }
    expected.push_back(inside ? x[static_cast<size_t>(left * step + from)] : number);
  }
  for (const int workers : {1, 2}) {
    Guarded<T> y(kBatch * out_count);
    Pad(sizeof(T), dimensions, mode, number).run(x.data(), y.data(), kBatch, ThreadParallel(workers));
    EXPECT_EQ(y.values(), expected);
    EXPECT_TRUE(y.intact());
  }
}

TEST(Pad, EveryModeEqualsPlainLoops) {
  SCOPED_TRACE(repeat_command());
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    for (const std::vector<PadDimension>& dimensions : {std::vector<PadDimension>{{5, 2, 3}},
                                                        {{40, 1, 0}, {300, 0, 2}},
                                                        {{6, 3, 2}, {7, 2, -3}, {5, 0, 0}},
                                                        {{4, 0, 0}, {3, -1, 2}, {8, 0, 0}, {2, 1, 1}},
                                                        {{9, 0, 0}},
                                                        {{6, -2, 2}, {4, 1, -1}}}) {
      check_pad<uint8_t>(dimensions, mode, 7);
      check_pad<uint16_t>(dimensions, mode, 70);
      check_pad<uint32_t>(dimensions, mode, 700);
    }
  }
}

TEST(Pad, SourcesAreThoseOfTheirModes) {
  const std::map<PadMode, std::vector<int64_t>> expected = {{PadMode::constant, {-1, -1, 0, 1, 2, -1, -1}},
                                                            {PadMode::reflect, {2, 1, 0, 1, 2, 1, 0}},
                                                            {PadMode::replicate, {0, 0, 0, 1, 2, 2, 2}},
                                                            {PadMode::circular, {1, 2, 0, 1, 2, 0, 1}}};
  for (const auto& [mode, sources] : expected) {
    for (int64_t i = 0; i < 7; ++i)
      EXPECT_EQ(pad_source({3, 2, 2}, mode, i), sources[static_cast<size_t>(i)]);
  }
}

TEST(Pad, RefusesMoreThanThereIs) {
  EXPECT_ERROR(Pad(4, {{3, 3, 0}}, PadMode::reflect, 0), "'reflect'");
  EXPECT_ERROR(Pad(4, {{3, 0, 4}}, PadMode::circular, 0), "'circular'");
  EXPECT_ERROR(Pad(4, {{3, -1, -2}}, PadMode::constant, 0), "'constant'");
  EXPECT_NO_THROW(Pad(4, {{3, 9, 9}}, PadMode::replicate, 0));
}

}  // namespace
}  // namespace ulp::kernels
