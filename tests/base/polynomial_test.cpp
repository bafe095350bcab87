#include "ulp/base/polynomial.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "ulp/base/error.h"

namespace ulp {
namespace {

using Sizes = std::vector<int64_t>;

Polynomial through(const SizeGrid& grid, const std::function<int64_t(const Sizes&)>& function) {
  std::vector<int64_t> values;
  for (const Sizes& point : grid.points()) values.push_back(function(point));
  return fit(grid, values);
}

TEST(Polynomial, PointsAreAllCombinationsAndBeginWithTheBase) {
  const SizeGrid grid{{{4, 1, 1}, {10, -2, 2}}};
  const std::vector<Sizes> expected = {{4, 10}, {5, 10}, {4, 8}, {5, 8}, {4, 6}, {5, 6}};
  EXPECT_EQ(grid.points(), expected);
  EXPECT_EQ(SizeGrid().points(), std::vector<Sizes>{{}});
}

TEST(Polynomial, IsFoundFromSamplesAndHoldsElsewhere) {
  const SizeGrid grid{{{2, 1, 1}, {64, -2, 2}, {30, -3, 2}}};
  const std::vector<std::function<int64_t(const Sizes&)>> functions = {
      [](const Sizes&) { return 0; },
      [](const Sizes&) { return 7; },
      [](const Sizes& s) { return s[0]; },
      [](const Sizes& s) { return 3 * s[0] * s[1] - s[2]; },
      [](const Sizes& s) { return s[1] / 2 + 1; },
      [](const Sizes& s) { return s[1] * (s[1] - 1) / 2; },
      [](const Sizes& s) { return s[0] * s[1] * s[1] * s[2] * s[2] / 9 + 5 * s[1]; },
      [](const Sizes& s) { return -1024 * s[1] * s[2] + 17; }};
  for (size_t f = 0; f < functions.size(); ++f) {
    const Polynomial found = through(grid, functions[f]);
    for (const Sizes& sizes : {Sizes{1, 2, 3}, Sizes{64, 100, 3}, Sizes{3, 4096, 300}, Sizes{9, 2, 999}}) {
      EXPECT_EQ(found.at(sizes), functions[f](sizes)) << "function " << f;
    }
    EXPECT_EQ(found.constant(), f < 2);
  }
}

TEST(Polynomial, ReadsLikeAFormula) {
  const SizeGrid grid{{{2, 1, 1}, {8, -2, 2}}};
  const std::vector<std::string> names = {"N", "time"};
  const auto text = [&](const std::function<int64_t(const Sizes&)>& function) {
    return to_text(through(grid, function), names);
  };
  EXPECT_EQ(text([](const Sizes&) { return 0; }), "0");
  EXPECT_EQ(text([](const Sizes&) { return -3; }), "-3");
  EXPECT_EQ(text([](const Sizes& s) { return s[0] * s[1] - 1; }), "N*time - 1");
  EXPECT_EQ(text([](const Sizes& s) { return s[1] / 2 + 12 * s[0]; }), "12*N + time/2");
  EXPECT_EQ(text([](const Sizes& s) { return -s[1] * s[1]; }), "-time*time");
}

TEST(Polynomial, RefusesWhatItCannotSay) {
  const SizeGrid grid{{{4, 2, 2}}};
  const Polynomial half = through(grid, [](const Sizes& s) { return s[0] / 2; });
  EXPECT_EQ(half.at(Sizes{10}), 5);
  EXPECT_THROW(half.at(Sizes{11}), Error);
  EXPECT_THROW(half.at(Sizes{}), Error);
  const int64_t large = std::numeric_limits<int64_t>::max();
  const Polynomial square = through(grid, [](const Sizes& s) { return s[0] * s[0]; });
  EXPECT_THROW(square.at(Sizes{large}), Error);
  EXPECT_EQ(square.at(Sizes{3037000499}), int64_t{3037000499} * 3037000499);
  EXPECT_THROW(fit(grid, std::vector<int64_t>{1, 2}), Error);
  EXPECT_THROW(fit({{{1, 1, 3}}}, std::vector<int64_t>{1, 2, 3, 4}), Error);
  const Polynomial hostile{{{large, 1, {3}}}};
  EXPECT_THROW(hostile.at(Sizes{large}), Error);
}

}  // namespace
}  // namespace ulp
