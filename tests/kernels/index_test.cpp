// Gather, scatter and sort against plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "error_of.h"
#include "helpers.h"
#include "ulp/kernels/index/gather.h"
#include "ulp/kernels/index/scatter.h"
#include "ulp/kernels/index/sort.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

constexpr int64_t kIndexBatch = 5;

int64_t elements(const std::vector<GatherDimension>& dimensions) {
  int64_t count = 1;
  for (const GatherDimension& d : dimensions) count *= d.size;
  return count;
}

/// Elements that an item needs of the source (with all its rows) and of the ids.
std::pair<int64_t, int64_t> room(const std::vector<GatherDimension>& dimensions, int64_t rows, int64_t row) {
  int64_t source = (rows - 1) * row + 1, ids = 1;
  for (const GatherDimension& d : dimensions) {
    source += (d.size - 1) * d.source;
    ids += (d.size - 1) * d.ids;
  }
  return {source, ids};
}

struct GatherCase {
  std::vector<GatherDimension> dimensions;
  int64_t row;
  const char* kernel;
};

const GatherCase kGathers[] = {{{}, 1, "gather"},
                               {{{7, 0, 1}}, 1, "gather"},
                               {{{7, 0, 1}, {1, 1, 0}}, 1, "gather"},
                               {{{9, 0, 1}, {64, 1, 0}}, 64, "copy"},
                               {{{500, 0, 1}, {70, 1, 0}}, 70, "copy"},
                               {{{3, 40, 0}, {6, 0, 1}, {5, 1, 0}}, 5, "copy"},
                               {{{3, 40, 6}, {6, 0, 1}}, 5, "gather"},
                               {{{4, 60, 6}, {3, 0, 2}, {2, 1, 1}}, 12, "gather"},
                               {{{2, 100, 35}, {5, 10, 7}, {7, 0, 1}}, 1, "gather"},
                               {{{2, 100, 12}, {3, 20, 0}, {6, 0, 2}, {2, 7, 1}}, 9, "gather"}};

template <typename T, typename Id>
void check_gather(const GatherCase& c, bool table, bool shared_ids, bool from_end) {
  constexpr int64_t kRows = 8;
  const IdRange range{kRows, from_end};
  const auto [source, count] = room(c.dimensions, kRows, c.row);
  const GatherSource from{.element_size = sizeof(T),
                          .item = table ? 0 : source,
                          .row = c.row,
                          .id_type = sizeof(Id) == 8 ? DataType::i64 : DataType::i32,
                          .item_ids = shared_ids ? 0 : count,
                          .range = range};
  const std::vector<T> x = random_ints<T>(table ? source : kIndexBatch * source, 1, 0, 250);
  const std::vector<Id> ids = random_ints<Id>(shared_ids ? count : kIndexBatch * count, 2,
                                              static_cast<int>(range.low()), static_cast<int>(kRows - 1));
  std::vector<T> expected;
  const int64_t item = elements(c.dimensions);
  for (int64_t i = 0; i < kIndexBatch * item; ++i) {
    int64_t at = i / item * from.item, place = i / item * from.item_ids, left = i % item;
    for (size_t d = c.dimensions.size(); d-- > 0; left /= c.dimensions[d].size) {
      at += left % c.dimensions[d].size * c.dimensions[d].source;
      place += left % c.dimensions[d].size * c.dimensions[d].ids;
    }
    const int64_t id = ids[static_cast<size_t>(place)];
    expected.push_back(x[static_cast<size_t>(at + (id < 0 ? id + kRows : id) * c.row)]);
  }
  const Gather gather(from, c.dimensions);
  EXPECT_STREQ(gather.kernel(), c.kernel);
  for (const int workers : {1, 3}) {
    Guarded<T> y(static_cast<int64_t>(expected.size()));
    FirstBadId bad;
    gather.run(x.data(), ids.data(), y.data(), kIndexBatch, ThreadParallel(workers), bad);
    EXPECT_EQ(y.values(), expected) << "case " << &c - kGathers;
    EXPECT_TRUE(y.intact());
    EXPECT_FALSE(bad.any());
  }
}

TEST(Gather, EveryKindEqualsPlainLoops) {
  SCOPED_TRACE(repeat_command());
  for (const GatherCase& c : kGathers) {
    for (const bool table : {false, true}) {
      for (const bool shared_ids : {false, true}) {
        check_gather<uint8_t, int64_t>(c, table, shared_ids, false);
        check_gather<uint16_t, int32_t>(c, table, shared_ids, true);
        check_gather<uint32_t, int64_t>(c, table, shared_ids, true);
        check_gather<uint64_t, int32_t>(c, table, shared_ids, false);
      }
    }
  }
}

TEST(Gather, BadIdsReadRowZeroAndTheFirstIsReported) {
  SCOPED_TRACE(repeat_command());
  constexpr int64_t kCount = 40000, kRows = 10;
  const std::vector<float> x = random_floats(kRows * 3, 4);
  for (const int64_t wrong :
       {kRows, int64_t{-1}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    std::vector<int64_t> ids(kCount, 7);
    for (const size_t at : {30001, 12345, 39999}) ids[at] = wrong;
    const GatherSource from{.item = 0, .row = 3, .item_ids = kCount, .range = {kRows, false}};
    Guarded<float> y(kCount * 3);
    FirstBadId bad;
    Gather(from, {{kCount, 0, 1}, {3, 1, 0}}).run(x.data(), ids.data(), y.data(), 1, ThreadParallel(3), bad);
    EXPECT_EQ(bad.element(), 12345);
    EXPECT_TRUE(y.intact());
    EXPECT_EQ(y.values()[12345 * 3 + 1], x[1]);
    EXPECT_EQ(y.values()[12346 * 3 + 1], x[7 * 3 + 1]);
  }
}

TEST(Gather, RefusesOtherTypes) {
  EXPECT_ERROR(Gather({.element_size = 3}, {}), "1, 2, 4 or 8 bytes, got 3");
  EXPECT_ERROR(Gather({.id_type = DataType::f32}, {}), "ids of type i32 or i64, got f32");
}

struct ScatterCase {
  std::vector<ScatterDimension> dimensions;
  size_t along;
  int64_t row;
};

const ScatterCase kScatters[] = {{{{9, 0}}, 0, 1},
                                 {{{4000, 0}}, 0, 1},
                                 {{{3, 60}, {20, 0}}, 1, 1},
                                 {{{6, 0}, {5, 1}}, 0, 5},
                                 {{{3, 60}, {4, 0}, {5, 1}}, 1, 5},
                                 {{{2, 70}, {3, 0}, {2, 3}, {2, 1}}, 1, 7}};

template <typename T>
T joined(ScatterMode mode, T held, T written) {
  if (mode == ScatterMode::add) return static_cast<T>(held + written);
  if (mode == ScatterMode::multiply) return static_cast<T>(held * written);
  if (mode == ScatterMode::max) return std::max(held, written);
  return mode == ScatterMode::min ? std::min(held, written) : written;
}

template <typename T>
void check_scatter(const ScatterCase& c, DataType type, ScatterMode mode, bool with_source) {
  constexpr int64_t kRows = 10;
  int64_t item = (kRows - 1) * c.row + 1, count = 1;
  for (const ScatterDimension& d : c.dimensions) {
    item += (d.size - 1) * d.target;
    count *= d.size;
  }
  const std::vector<T> x = random_ints<T>(kIndexBatch * item, 1, 0, 100),
                       // Products of many stay finite.
      source = random_ints<T>(kIndexBatch * count, 2, 0, mode == ScatterMode::multiply ? 1 : 100);
  const std::vector<int32_t> ids = random_ints<int32_t>(kIndexBatch * count, 3, 0, kRows - 1);
  const float value = 2;
  std::vector<T> expected = x;
  for (int64_t i = 0; i < kIndexBatch * count; ++i) {
    int64_t to = i / count * item + ids[static_cast<size_t>(i)] * c.row, left = i % count;
    for (size_t d = c.dimensions.size(); d-- > 0; left /= c.dimensions[d].size)
      to += left % c.dimensions[d].size * c.dimensions[d].target;
    const T written =
        with_source ? source[static_cast<size_t>(i)] : static_cast<T>(type == DataType::bf16 ? 0x4000 : 2);
    T& y = expected[static_cast<size_t>(to)];
    y = joined(mode, y, written);
  }
  const Scatter scatter({.type = type,
                         .mode = mode,
                         .item = item,
                         .row = c.row,
                         .id_type = DataType::i32,
                         .range = {kRows, false}},
                        c.dimensions, c.along);
  for (const int workers : {1, 3}) {
    Guarded<T> y(kIndexBatch * item);
    for (const bool in_place : {false, true}) {
      if (in_place) std::ranges::copy(x, y.data());
      FirstBadId bad;
      scatter.run(in_place ? y.data() : x.data(), ids.data(), with_source ? source.data() : nullptr, value,
                  y.data(), kIndexBatch, ThreadParallel(workers), bad);
      EXPECT_EQ(y.values(), expected) << "case " << &c - kScatters;
      EXPECT_TRUE(y.intact());
      EXPECT_FALSE(bad.any());
    }
  }
}

TEST(Scatter, EveryKindEqualsPlainLoops) {
  SCOPED_TRACE(repeat_command());
  for (const ScatterCase& c : kScatters) {
    using enum ScatterMode;
    for (const ScatterMode mode : {replace, add, multiply, max, min}) {
      check_scatter<float>(c, DataType::f32, mode, true);
      check_scatter<float>(c, DataType::f32, mode, false);
    }
    check_scatter<uint16_t>(c, DataType::bf16, ScatterMode::replace, true);
    check_scatter<uint16_t>(c, DataType::bf16, ScatterMode::replace, false);
    check_scatter<uint8_t>(c, DataType::u8, ScatterMode::replace, true);
  }
}

TEST(Scatter, ExtremesKeepWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {nan, 1, 1}, source = {5, nan, 5};
  const std::vector<int64_t> ids = {0, 1, 2};
  for (const ScatterMode mode : {ScatterMode::max, ScatterMode::min}) {
    Guarded<float> y(3);
    FirstBadId bad;
    Scatter({.mode = mode, .item = 3, .range = {3, false}}, {{3, 0}}, 0)
        .run(x.data(), ids.data(), source.data(), 0, y.data(), 1, SerialParallel(), bad);
    EXPECT_TRUE(std::isnan(y.values()[0]));
    EXPECT_TRUE(std::isnan(y.values()[1]));
    EXPECT_EQ(y.values()[2], mode == ScatterMode::max ? 5 : 1);
  }
}

TEST(Scatter, BadIdsWriteNothingAndTheFirstIsReported) {
  SCOPED_TRACE(repeat_command());
  constexpr int64_t kItems = 50, kCount = 1000, kRows = 10;
  const std::vector<float> x(kItems * kRows, 3);
  std::vector<int64_t> ids(kItems * kCount, 7);
  ids[30 * kCount + 4] = kRows;
  ids[20 * kCount + 5] = -1;
  ids[40 * kCount] = std::numeric_limits<int64_t>::min();
  const Scatter scatter({.item = kRows, .range = {kRows, false}}, {{kCount, 0}}, 0);
  Guarded<float> y(kItems * kRows);
  FirstBadId bad;
  scatter.run(x.data(), ids.data(), nullptr, 5, y.data(), kItems, ThreadParallel(3), bad);
  EXPECT_EQ(bad.element(), 20 * kCount + 5);
  EXPECT_TRUE(y.intact());
  const std::vector<float> written = y.values();
  for (size_t i = 0; i < written.size(); ++i) ASSERT_EQ(written[i], i % kRows == 7 ? 5 : 3) << i;
}

TEST(Scatter, RefusesOtherTypes) {
  EXPECT_ERROR(Scatter({.type = DataType::i64}, {}, 0), "f32, bf16 or u8");
  EXPECT_ERROR(Scatter({.type = DataType::bf16, .mode = ScatterMode::add}, {}, 0), "f32 to join, got bf16");
  EXPECT_ERROR(Scatter({.id_type = DataType::u8}, {}, 0), "ids of type i32 or i64, got u8");
}

float as_float(uint8_t x) {
  return x;
}
float as_float(float x) {
  return x;
}
float as_float(uint16_t x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// The places of one line's elements in order, all of them.
template <typename T>
std::vector<int64_t> sorted_places(const std::vector<T>& line, bool descending) {
  std::vector<int64_t> places(line.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, [&](int64_t a, int64_t b) {
    const float left = as_float(line[static_cast<size_t>(a)]), right = as_float(line[static_cast<size_t>(b)]);
    if (descending) return std::isnan(left) ? !std::isnan(right) : left > right;
    return std::isnan(right) ? !std::isnan(left) : left < right;
  });
  return places;
}

template <typename T>
void check_sort(DataType type, const std::vector<T>& x, int64_t size, int64_t inner, int64_t kept) {
  const int64_t outer = static_cast<int64_t>(x.size()) / size / inner;
  for (const bool descending : {false, true}) {
    std::vector<T> values(static_cast<size_t>(outer * kept * inner));
    std::vector<int64_t> places(values.size());
    for (int64_t i = 0; i < outer * inner; ++i) {
      const int64_t first = i / inner * size * inner + i % inner;
      std::vector<T> line;
      for (int64_t k = 0; k < size; ++k) line.push_back(x[static_cast<size_t>(first + k * inner)]);
      const std::vector<int64_t> all = sorted_places(line, descending);
      for (int64_t k = 0; k < kept; ++k) {
        const auto to = static_cast<size_t>(i / inner * kept * inner + k * inner + i % inner);
        places[to] = all[static_cast<size_t>(k)];
        values[to] = line[static_cast<size_t>(places[to])];
      }
    }
    for (const int workers : {1, 3}) {
      const auto run = [&](bool as_places, void* y) {
        const Sort sort({type, size, inner, kept, descending, as_places});
        Guarded<uint8_t> scratch(static_cast<int64_t>(sort.workspace_bytes(workers)), 0);
        sort.run(x.data(), y, outer, scratch.data(), ThreadParallel(workers));
        EXPECT_TRUE(scratch.intact());
      };
      Guarded<T> y(static_cast<int64_t>(values.size()));
      Guarded<int64_t> at(static_cast<int64_t>(places.size()));
      run(false, y.data());
      run(true, at.data());
      // Bits: NaNs are not equal to themselves.
      EXPECT_EQ(std::memcmp(y.data(), values.data(), values.size() * sizeof(T)), 0);
      EXPECT_EQ(at.values(), places) << size << " x " << inner << ", " << kept << " kept";
      EXPECT_TRUE(y.intact() && at.intact());
    }
  }
}

TEST(Sort, LinesOfAnyLengthEqualAStableSort) {
  SCOPED_TRACE(repeat_command());
  for (const int64_t size : {1, 2, 7, 64, 500, 5000}) {
    for (const int64_t inner : {1, 3}) {
      for (const int64_t kept : {int64_t{1}, std::min<int64_t>(size, 5), (size + 1) / 2, size}) {
        const int64_t count = 4 * size * inner;
        check_sort(DataType::f32, random_floats(count, 1), size, inner, kept);
        check_sort(DataType::u8, random_ints<uint8_t>(count, 2, 0, 255), size, inner, kept);
        check_sort(DataType::bf16, random_ints<uint16_t>(count, 3, 0, 65535), size, inner, kept);
        std::vector<float> few(static_cast<size_t>(count));
        std::ranges::transform(random_ints<int>(count, 4, -2, 2), few.begin(),
                               [](int v) { return static_cast<float>(v); });
        check_sort(DataType::f32, few, size, inner, kept);
      }
    }
  }
}

TEST(Sort, NaNsAreGreatestAndZerosOfBothSignsAreEqual) {
  SCOPED_TRACE(repeat_command());
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, -0.0F, nan, 1e-45F, -1e-45F, inf, -nan, -inf, -0.0F, 0, 3e38F, -3e38F};
  for (const int64_t kept : {1, 5, 12}) check_sort(DataType::f32, x, 12, 1, kept);
  const auto places = [&](bool descending) {
    const Sort sort({DataType::f32, 12, 1, 12, descending, true});
    Guarded<uint8_t> scratch(static_cast<int64_t>(sort.workspace_bytes(1)), 0);
    std::vector<int64_t> y(12);
    sort.run(x.data(), y.data(), 1, scratch.data(), SerialParallel());
    return y;
  };
  EXPECT_EQ(places(false), (std::vector<int64_t>{7, 11, 4, 0, 1, 8, 9, 3, 10, 5, 2, 6}));
  EXPECT_EQ(places(true), (std::vector<int64_t>{2, 6, 5, 10, 3, 0, 1, 8, 9, 4, 11, 7}));
}

TEST(Sort, RefusesOtherTypes) {
  EXPECT_ERROR(Sort({.type = DataType::i64}), "f32, bf16 or u8, got i64");
}

}  // namespace
}  // namespace ulp::kernels
