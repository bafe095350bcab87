// Layer norm and curves against float64.
#include "ulp/kernels/elementwise/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "exact_activation.h"
#include "helpers.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;
using ulp::test::exact_activation;

TEST(Rows, LayerNormIsWithinRoundingOfFloat64AndTheSameEverywhere) {
  for (const int64_t n : {1, 3, 16, 31, 128, 769}) {
    constexpr int64_t kRows = 5;
    const auto x = random_floats(kRows * n, 1, -2, 6), w = random_floats(n, 2), b = random_floats(n, 3);
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      Guarded<float> y(kRows * n);
      layer_norm({.columns = n, .input = {}, .output = {}, .epsilon = 1e-5F}, x.data(), w.data(), b.data(),
                 y.data(), kRows, nullptr, isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      const std::vector<float> got = y.values();
      if (first.empty()) first = got;
      EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0) << to_string(isa) << " " << n;
    }
    for (int64_t r = 0; r < kRows; ++r) {
      double mean = 0, variance = 0, magnitude = 0;
      for (int64_t i = 0; i < n; ++i) mean += x[static_cast<size_t>(r * n + i)] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) {
        const double v = x[static_cast<size_t>(r * n + i)];
        variance += (v - mean) * (v - mean) / static_cast<double>(n);
        magnitude = std::max(magnitude, std::abs(v));
      }
      const double factor = 1 / std::sqrt(variance + double{1e-5F});
      // The mean of n numbers in 16 lanes is off by n / 16 + 16 roundings at most, the rest by a few.
      const double bound = (static_cast<double>(n) / 16 + 24) * kUlp * (magnitude * factor + 1) * 3;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(r * n + i), c = static_cast<size_t>(i);
        EXPECT_NEAR(first[at], (x[at] - mean) * factor * w[c] + b[c], bound) << n << " element " << at;
      }
    }
  }
}

TEST(Rows, LayerNormWithoutWeightOrBias) {
  const auto x = random_floats(40, 1), w = random_floats(20, 2);
  const std::vector<float> zeros(20), ones(20, 1.0F);
  for (const Isa isa : available_isas()) {
    const auto run = [&](const float* weight, const float* bias) {
      std::vector<float> y(40);
      layer_norm({.columns = 20, .input = {}, .output = {}, .epsilon = 1e-5F}, x.data(), weight, bias,
                 y.data(), 2, nullptr, isa, SerialParallel());
      return y;
    };
    EXPECT_EQ(run(nullptr, nullptr), run(ones.data(), zeros.data()));
    EXPECT_EQ(run(w.data(), nullptr), run(w.data(), zeros.data()));
    EXPECT_EQ(run(nullptr, w.data()), run(ones.data(), w.data()));
  }
}

// What is no f32 is widened before and rounded behind the same arithmetic.
TEST(Rows, LayerNormOfOtherTypesIsThatOfTheirNumbersRounded) {
  constexpr int64_t kRows = 7;
  for (const int64_t n : {3, 33, 257}) {
    const auto x = random_floats(kRows * n, 1, -3, 3), w = random_floats(n, 2), b = random_floats(n, 3);
    for (const ElementFormat& input : element_formats()) {
      for (const ElementFormat& output : element_formats()) {
        const LayerNormShape shape{.columns = n, .input = input, .output = output, .epsilon = 1e-5F};
        TypedBuffer from(input, x);
        std::vector<float> made(x.size());
        layer_norm({.columns = n, .input = {}, .output = {}, .epsilon = 1e-5F}, from.values().data(),
                   w.data(), b.data(), made.data(), kRows, nullptr, Isa::portable, SerialParallel());
        const TypedBuffer expected(output, made);
        for (const Isa isa : available_isas()) {
          TypedBuffer to(output, std::vector<float>(x.size()));
          Workspace workspace(layer_norm_workspace_bytes(shape, 2));
          layer_norm(shape, from.data(), w.data(), b.data(), to.data(), kRows, workspace.data(), isa,
                     ThreadParallel(2));
          EXPECT_EQ(to.bytes(), expected.bytes()) << to_string(isa) << " " << to_string(input.type) << " to "
                                                  << to_string(output.type) << "; " << repeat_command();
        }
      }
    }
  }
}

TEST(Rows, CurvesAreWithinTheirBoundsAndTheSameEverywhere) {
  std::vector<float> x;
  for (int i = -60000; i <= 60000; ++i) x.push_back(static_cast<float>(i) * 2e-4F);
  for (const float special : {0.0F, -0.0F, 1e-30F, -1e30F, 1e30F}) x.push_back(special);
  const auto n = static_cast<int64_t>(x.size());
  for (const Activation curve : ulp::test::all_curves()) {
    std::vector<float> first;
    for (const Isa isa : available_isas()) {
      Guarded<float> y(n);
      activate(DataType::f32, curve, x.data(), y.data(), n, {}, isa, ThreadParallel(2));
      EXPECT_TRUE(y.intact());
      if (first.empty()) first = y.values();
      EXPECT_EQ(std::memcmp(first.data(), y.data(), first.size() * 4), 0) << to_string(isa);
    }
    const bool bounded = std::abs(exact_activation(curve, 1e30)) <= 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], unit = bounded ? 1.0 : std::abs(v);
      ASSERT_NEAR(first[i], exact_activation(curve, v), 0x1p-22 * unit)
          << ulp::to_string(curve) << " at " << v;
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float y = 0;
    activate(DataType::f32, curve, &nan, &y, 1, {}, Isa::portable, SerialParallel());
    EXPECT_TRUE(std::isnan(y)) << ulp::to_string(curve);
  }
}

}  // namespace
}  // namespace ulp::kernels
