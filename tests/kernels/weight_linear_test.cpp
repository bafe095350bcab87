// Layers with coded weights against float64, within the rounding of a sum of f32 products.
#include "ulp/kernels/linear/weight_linear.h"

#include <algorithm>
#include <cmath>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct Case {
  int64_t rows, in, out, group;
  int bits;
  bool zero, bias, residual;
  Activation activation;
};

const Case kCases[] = {{1, 1, 1, 1, 8, false, true, false, Activation::none},
                       {1, 1, 1, 2, 4, true, false, false, Activation::none},
                       {3, 70, 33, 70, 8, false, true, true, Activation::gelu},
                       {17, 64, 48, 32, 4, false, true, false, Activation::relu},
                       {60, 100, 19, 32, 4, true, true, true, Activation::none},
                       {29, 67, 130, 64, 4, true, false, false, Activation::tanh},
                       {15, 40, 16, 16, 8, false, false, true, Activation::relu6},
                       {200, 33, 40, 32, 8, false, true, true, Activation::gelu}};

/// Few rows are computed in registers, many from unpacked weights.
void expect_the_same_for_any_number_of_rows(float smallest_scale) {
  constexpr int64_t kRows = 131, kIn = 90, kOut = 70, kGroup = 34, kGroups = 3;
  const auto x = random_floats(kRows * kIn, 1), residual = random_floats(kRows * kOut, 2),
             bias = random_floats(kOut, 3);
  auto scale = random_floats(kOut * kGroups, 4, 0.01F, 0.1F);
  scale[7] = smallest_scale;
  const auto codes = random_ints<uint8_t>(kOut * kGroups * kGroup, 5, 0, 255);
  const auto zeros = random_ints<uint8_t>(kOut * kGroups, 6, 0, 15);
  for (const int bits : {8, 4}) {
    for (const uint8_t* zero : {static_cast<const uint8_t*>(nullptr), zeros.data()}) {
      for (const Isa isa : available_isas()) {
        const auto linear = make_weight_linear({kIn, kOut, kGroup, bits, Activation::gelu, true},
                                               {codes.data(), scale.data(), zero, bias.data()}, isa);
        Guarded<float> all(kRows * kOut), few(kRows * kOut);
        Workspace workspace(linear->workspace_bytes(kRows, 3));
        linear->run(kRows, x.data(), residual.data(), all.data(), workspace.data(), ThreadParallel(3));
        for (const int64_t count : {1, 2, 3, 4, 5, 7, 9}) {
          for (int64_t r = 0; r < kRows; r += count) {
            linear->run(std::min(count, kRows - r), x.data() + r * kIn, residual.data() + r * kOut,
                        few.data() + r * kOut, workspace.data(), ThreadParallel(1));
          }
          EXPECT_TRUE(all.intact() && few.intact());
          for (int64_t i = 0; i < kRows * kOut; ++i)
            ASSERT_EQ(all.data()[i], few.data()[i]) << linear->name() << ", " << count << " rows, " << i;
        }
      }
    }
  }
}

TEST(WeightLinear, GivesTheSameForAnyNumberOfRows) {
  expect_the_same_for_any_number_of_rows(0.01F);
}

/// A scale out of which no power of two can be taken without a rounding.
TEST(WeightLinear, GivesTheSameWithATinyScale) {
  expect_the_same_for_any_number_of_rows(0x1.234568p-120F);
}

TEST(WeightLinear, IsWithinRoundingOfFloat64OnEveryInstructionSet) {
  for (const Case& c : kCases) {
    const int64_t groups = (c.in + c.group - 1) / c.group, stored = groups * c.group;
    const auto x = random_floats(c.rows * c.in, 1, -2, 3), bias = random_floats(c.out, 2);
    const auto residual = random_floats(c.rows * c.out, 3);
    const auto scale = random_floats(c.out * groups, 4, 0.01F, 0.1F);
    const auto zero = random_ints<uint8_t>(c.out * groups, 5, 0, 15);
    const auto codes = random_ints<uint8_t>(c.out * stored / (c.bits == 4 ? 2 : 1), 6, 0, 255);
    const auto weight = [&](int64_t o, int64_t k) {
      const int64_t at = o * stored + k, part = o * groups + k / c.group;
      const double s = scale[static_cast<size_t>(part)];
      if (c.bits == 8) return static_cast<int8_t>(codes[static_cast<size_t>(at)]) * s;
      const int pair = codes[static_cast<size_t>(at / 2)], code = at % 2 == 0 ? pair & 15 : pair >> 4;
      return (code - (c.zero ? zero[static_cast<size_t>(part)] : 8)) * s;
    };
    for (const Isa isa : available_isas()) {
      const auto linear = make_weight_linear(
          {c.in, c.out, c.group, c.bits, c.activation, c.residual},
          {codes.data(), scale.data(), c.zero ? zero.data() : nullptr, c.bias ? bias.data() : nullptr}, isa);
      Guarded<float> y(c.rows * c.out);
      Workspace workspace(linear->workspace_bytes(c.rows, 3));
      linear->run(c.rows, x.data(), residual.data(), y.data(), workspace.data(), ThreadParallel(3));
      EXPECT_TRUE(y.intact()) << linear->name();
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t o = 0; o < c.out; ++o) {
          double sum = c.bias ? bias[static_cast<size_t>(o)] : 0.0, magnitude = std::abs(sum);
          for (int64_t k = 0; k < c.in; ++k) {
            const double product = x[static_cast<size_t>(r * c.in + k)] * weight(o, k);
            sum += product;
            magnitude += std::abs(product);
          }
          const auto at = static_cast<size_t>(r * c.out + o);
          if (c.residual) sum += residual[at];
          magnitude += std::abs(sum) + 1;
          auto expected = static_cast<float>(sum);
          activate(DataType::f32, c.activation, &expected, &expected, 1, {}, Isa::portable, SerialParallel());
          // gelu's slope reaches 1.13.
          const double bound = 1.2 * static_cast<double>(c.in + 6) * 0x1p-24 * magnitude;
          ASSERT_NEAR(y.data()[at], expected, bound)
              << linear->name() << " row " << r << " channel " << o << "; " << repeat_command();
        }
      }
    }
  }
}

TEST(WeightLinear, RefusesWhatItCannotRead) {
  const std::vector<uint8_t> codes(64);
  const std::vector<float> scale(64, 1.0F);
  const WeightLinearWeights weights{codes.data(), scale.data(), nullptr, nullptr};
  EXPECT_THROW(make_weight_linear({.in = 8, .out = 2, .group = 8, .bits = 3}, weights, Isa::portable), Error);
  EXPECT_THROW(make_weight_linear({.in = 9, .out = 2, .group = 3, .bits = 4}, weights, Isa::portable), Error);
  EXPECT_THROW(make_weight_linear({.in = 0, .out = 2, .group = 2, .bits = 4}, weights, Isa::portable), Error);
  EXPECT_THROW(make_weight_linear({.in = 8, .out = 2, .group = 8, .bits = 8}, {}, Isa::portable), Error);
}

}  // namespace
}  // namespace ulp::kernels
