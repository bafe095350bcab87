// Group norm against float64, in both layouts, on every instruction set.
#include "ulp/kernels/elementwise/group_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "error_of.h"
#include "helpers.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

constexpr float kEpsilon = 1e-5F;
constexpr int64_t kItems = 3;

/// Widths of one channel, of several groups in a vector, of a group in several; long and short rows.
const GroupNormShape kGroupNormShapes[] = {
    {1, 1, 1},      {1, 700, 1}, {6, 5, 3},    {24, 17, 2},   {40, 9, 40}, {48, 49, 16},  {64, 130, 32},
    {100, 300, 20}, {130, 9, 2}, {200, 3, 50}, {256, 64, 32}, {300, 7, 1}, {8, 30000, 4}, {16, 10000, 1}};

/// Numbers of one item and the index of a channel's pixel in it.
int64_t index_of(const GroupNormShape& shape, int64_t channel, int64_t pixel) {
  return shape.channels_last ? pixel * shape.channels + channel : channel * shape.pixels + pixel;
}

/// Expects y to be the norm of x within `units` roundings of the largest number of the group.
void expect_near(const GroupNormShape& shape, const float* x, const float* w, const float* b, const float* y,
                 double units) {
  const int64_t width = shape.channels / shape.groups;
  const auto count = static_cast<double>(width * shape.pixels);
  for (int64_t first = 0; first < shape.channels; first += width) {
    double mean = 0, variance = 0, largest = 0, worst = 0;
    const auto each = [&](auto&& act) {
      for (int64_t c = first; c < first + width; ++c) {
        for (int64_t p = 0; p < shape.pixels; ++p) act(c, index_of(shape, c, p));
      }
    };
    each([&](int64_t, int64_t i) { mean += x[i] / count; });
    each([&](int64_t, int64_t i) {
      variance += (x[i] - mean) * (x[i] - mean) / count;
      largest = std::max(largest, std::abs(double{x[i]}));
    });
    const double factor = 1 / std::sqrt(variance + double{kEpsilon});
    each([&](int64_t c, int64_t i) {
      worst = std::max(worst, std::abs((x[i] - mean) * factor * w[c] + b[c] - y[i]));
    });
    EXPECT_LE(worst, units * kUlp * (largest * factor + 1))
        << shape.channels << " channels, " << shape.pixels << " pixels, channel " << first
        << (shape.channels_last ? ", channels last" : "");
  }
}

class GroupNorm : public ::testing::TestWithParam<bool> {
 protected:
  /// The result on every instruction set, which is the same; in place, too.
  static std::vector<float> run(const GroupNormShape& shape, const std::vector<float>& x, const float* weight,
                                const float* bias) {
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      Guarded<float> y(static_cast<int64_t>(x.size()));
      group_norm(shape, kItems, x.data(), weight, bias, kEpsilon, y.data(), isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      if (first.empty()) first = y.values();
      EXPECT_EQ(first, y.values()) << to_string(isa);
      std::vector<float> own = x;
      group_norm(shape, kItems, own.data(), weight, bias, kEpsilon, own.data(), isa, SerialParallel());
      EXPECT_EQ(first, own) << to_string(isa) << ", in place";
    }
    return first;
  }
};

TEST_P(GroupNorm, IsWithinRoundingOfFloat64AndTheSameEverywhere) {
  SCOPED_TRACE(repeat_command());
  for (GroupNormShape shape : kGroupNormShapes) {
    shape.channels_last = GetParam();
    const int64_t item = shape.channels * shape.pixels;
    const auto x = random_floats(kItems * item, 1, -2, 6);
    const auto w = random_floats(shape.channels, 2), b = random_floats(shape.channels, 3);
    const std::vector<float> y = run(shape, x, w.data(), b.data());
    for (int64_t n = 0; n < kItems; ++n)
      expect_near(shape, x.data() + n * item, w.data(), b.data(), y.data() + n * item, 3);
  }
}

// What is no f32 is widened before and rounded behind the same arithmetic.
TEST_P(GroupNorm, OfOtherTypesIsThatOfTheirNumbersRounded) {
  SCOPED_TRACE(repeat_command());
  for (GroupNormShape shape :
       {GroupNormShape{48, 49, 16}, GroupNormShape{130, 9, 2}, GroupNormShape{6, 150, 3}}) {
    shape.channels_last = GetParam();
    const auto x = random_floats(kItems * shape.channels * shape.pixels, 1, -3, 3);
    const auto w = random_floats(shape.channels, 2), b = random_floats(shape.channels, 3);
    for (const ElementFormat& input : element_formats()) {
      for (const ElementFormat& output : element_formats()) {
        TypedBuffer from(input, x);
        const std::vector<float> made = run(shape, from.values(), w.data(), b.data());
        const TypedBuffer expected(output, made);
        GroupNormShape typed = shape;
        typed.input = input;
        typed.output = output;
        for (const Isa isa : available_isas()) {
          TypedBuffer to(output, std::vector<float>(x.size()));
          group_norm(typed, kItems, from.data(), w.data(), b.data(), kEpsilon, to.data(), isa,
                     ThreadParallel(2));
          EXPECT_EQ(to.bytes(), expected.bytes())
              << to_string(isa) << " " << to_string(input.type) << " to " << to_string(output.type);
        }
      }
    }
  }
}

TEST_P(GroupNorm, FarFromZeroTheDifferencesKeepTheirDigits) {
  GroupNormShape shape{32, 400, 8, GetParam()};
  const auto x = random_floats(kItems * 32 * 400, 1, 1000, 1001);
  const std::vector<float> w(32, 1.0F), b(32);
  const std::vector<float> y = run(shape, x, w.data(), b.data());
  for (int64_t n = 0; n < kItems; ++n) {
    const int64_t at = n * 32 * 400;
    expect_near(shape, x.data() + at, w.data(), b.data(), y.data() + at, 2);
  }
}

TEST_P(GroupNorm, WithoutWeightOrBias) {
  const GroupNormShape shape{20, 6, 5, GetParam()};
  const auto x = random_floats(kItems * 120, 1), w = random_floats(20, 2);
  const std::vector<float> zeros(20), ones(20, 1.0F);
  EXPECT_EQ(run(shape, x, nullptr, nullptr), run(shape, x, ones.data(), zeros.data()));
  EXPECT_EQ(run(shape, x, w.data(), nullptr), run(shape, x, w.data(), zeros.data()));
  EXPECT_EQ(run(shape, x, nullptr, w.data()), run(shape, x, ones.data(), w.data()));
}

TEST_P(GroupNorm, EqualNumbersGiveTheBias) {
  const GroupNormShape shape{4, 150, 2, GetParam()};
  const std::vector<float> x(kItems * 600, 0.1F), b = {1, 2, 3, 4};
  const std::vector<float> y = run(shape, x, nullptr, b.data());
  std::vector<float> expected(y.size());
  for (int64_t i = 0; i < kItems * 600; ++i) {
    const int64_t channel = shape.channels_last ? i % 4 : i % 600 / 150;
    expected[static_cast<size_t>(i)] = b[static_cast<size_t>(channel)];
  }
  EXPECT_EQ(y, expected);
}

INSTANTIATE_TEST_SUITE_P(Kernels, GroupNorm, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ChannelsLast" : "ChannelsFirst"; });

TEST(GroupNormShapes, GroupsThatDoNotDivideAreRefused) {
  float x[6] = {}, y[6];
  for (const int64_t groups : {0, 4}) {
    const auto run = [&] {
      group_norm({6, 1, groups}, 1, x, nullptr, nullptr, 0, y, Isa::portable, SerialParallel());
    };
    EXPECT_ERROR(run(), "expected groups that divide the 6 channels, got " + std::to_string(groups));
  }
}

}  // namespace
}  // namespace ulp::kernels
