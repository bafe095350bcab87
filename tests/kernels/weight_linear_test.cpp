// Layers with coded weights against float64, within the rounding of a sum of f32 products.
#include "ulp/kernels/linear/weight_linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct WeightLinearCase {
  int64_t rows, in, out, group;
  int bits;
  bool zero, bias, residual;
  Activation activation;
  bool minimum = false;
};

const WeightLinearCase kWeightLinearCases[] = {
    {1, 1, 1, 1, 8, false, true, false, Activation::none},
    {1, 1, 1, 2, 4, true, false, false, Activation::none},
    {3, 70, 33, 70, 8, false, true, true, Activation::gelu},
    {17, 64, 48, 32, 4, false, true, false, Activation::relu},
    {2, 67, 40, 32, 4, true, true, true, Activation::gelu},
    {5, 300, 37, 128, 4, false, true, true, Activation::none},
    {60, 100, 19, 32, 4, true, true, true, Activation::none},
    {29, 67, 130, 64, 4, true, false, false, Activation::tanh},
    {15, 40, 16, 16, 8, false, false, true, Activation::relu6},
    {200, 33, 40, 32, 8, false, true, true, Activation::gelu},
    {4, 67, 40, 32, 4, false, true, true, Activation::gelu, true},
    {60, 100, 19, 32, 4, false, false, false, Activation::none, true}};

/// What the codes of a group have beside a scale.
enum class Offset { none, zero, minimum };

std::vector<Offset> offsets_of(int bits) {
  if (bits == 8) return {Offset::none, Offset::zero};
  return {Offset::none, Offset::zero, Offset::minimum};
}

/// Codes, scales and what else a layer has, all random.
struct WeightLayer {
  int64_t in, out, group, groups;
  int bits;
  std::vector<uint8_t> codes, zeros;
  std::vector<float> scale, minimum, bias;

  WeightLayer(int64_t inputs, int64_t outputs, int64_t of_group, int number_bits)
      : in(inputs),
        out(outputs),
        group(of_group),
        groups((inputs + of_group - 1) / of_group),
        bits(number_bits),
        codes(random_ints<uint8_t>(out * groups * group * bits / 8, 5, 0, 255)),
        zeros(random_ints<uint8_t>(out * groups, 6, 0, 15)),
        scale(random_floats(out * groups, 4, 0.01F, 0.1F)),
        minimum(random_floats(out * groups, 7, -0.5F, 1.0F)),
        bias(random_floats(out, 3)) {}

  std::unique_ptr<WeightLinear> make(Offset offset, Isa isa, Activation activation = Activation::none) const {
    return make_weight_linear({in, out, group, bits, activation, true},
                              {.codes = codes.data(),
                               .scale = scale.data(),
                               .zero = offset == Offset::zero ? zeros.data() : nullptr,
                               .bias = bias.data(),
                               .minimum = offset == Offset::minimum ? minimum.data() : nullptr},
                              isa);
  }
  /// Of 4 bits without a sign.
  int code(int64_t channel, int64_t k) const {
    const int64_t at = channel * groups * group + k;
    if (bits == 8) return static_cast<int8_t>(codes[static_cast<size_t>(at)]);
    const int pair = codes[static_cast<size_t>(at / 2)];
    return at % 2 == 0 ? pair & 15 : pair >> 4;
  }
};

std::vector<float> run(const WeightLinear& linear, const WeightLayer& layer, int64_t rows,
                       const std::vector<float>& x, const std::vector<float>& residual, int threads) {
  Guarded<float> y(rows * layer.out);
  Workspace workspace(linear.workspace_bytes(rows, threads));
  linear.run(rows, x.data(), residual.data(), y.data(), workspace.data(), ThreadParallel(threads));
  EXPECT_TRUE(y.intact()) << linear.name();
  return {y.data(), y.data() + rows * layer.out};
}

/// Of a group of inputs, in the order that the tiles for few rows have: eight sums of every eighth input.
float sum_of_inputs(const float* x, int64_t count) {
  std::vector<float> sums(8);
  for (int64_t k = 0; k < count; ++k) sums[static_cast<size_t>(k % 8)] += x[k];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// What 1 stands for in the digits of a group of inputs.
float unit_of(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) largest = std::max(largest, std::abs(x[k]));
  if (largest == 0) return 1;
  double unit = 0x1p-149;
  while (std::nearbyint(largest / unit) > 0x7f7f7f) unit *= 2;
  return static_cast<float>(unit);
}

/// Three digits of -128 to 127, the lowest first.
std::array<int64_t, 3> digits_of(float x, float unit) {
  auto left = static_cast<int64_t>(std::nearbyint(static_cast<double>(x) / unit));
  std::array<int64_t, 3> digits{};
  for (int64_t& digit : digits) {
    digit = ((left + 128) & 255) - 128;
    left = (left - digit) / 256;
  }
  EXPECT_EQ(left, 0) << x;
  return digits;
}

/// A group of inputs times its codes of 4 bits, before the scale.
float digits_sum(const WeightLayer& layer, Offset offset, const float* x, int64_t first, int64_t count,
                 int64_t channel) {
  const float unit = unit_of(x + first, count);
  int64_t sums[3] = {};
  for (int64_t k = first; k < first + count; ++k) {
    const auto digits = digits_of(x[k], unit);
    for (size_t d = 0; d < 3; ++d)
      sums[d] += digits[d] * (layer.code(channel, k) - (offset == Offset::minimum ? 0 : 8));
  }
  const auto number = [&](int d) { return static_cast<float>(sums[d]); };
  return std::fma(number(2), 0x1p16F, std::fma(number(1), 0x1p8F, number(0))) * unit;
}

/// What weight_linear.h says of few rows, with fused steps.
float few_rows_sum(const WeightLayer& layer, Offset offset, const float* x, int64_t channel) {
  float sum = layer.bias[static_cast<size_t>(channel)];
  for (int64_t g = 0; g < layer.groups; ++g) {
    const int64_t first = g * layer.group, count = std::min(layer.group, layer.in - first);
    const auto at = static_cast<size_t>(channel * layer.groups + g);
    const float negative_sum = -sum_of_inputs(x + first, count);
    float of_group;
    if (layer.bits == 4) {
      of_group = digits_sum(layer, offset, x, first, count, channel);
      if (offset == Offset::zero)
        of_group = std::fma(negative_sum, static_cast<float>(layer.zeros[at] - 8), of_group);
    } else {
      float parts[2] = {offset == Offset::zero ? negative_sum * static_cast<float>(layer.zeros[at]) : 0, 0};
      for (int64_t k = 0; k < count; ++k) {
        parts[k % 2] =
            std::fma(x[first + k], static_cast<float>(layer.code(channel, first + k)), parts[k % 2]);
      }
      of_group = parts[0] + parts[1];
    }
    sum = std::fma(of_group, layer.scale[at], sum);
    if (offset == Offset::minimum) sum = std::fma(negative_sum, layer.minimum[at], sum);
  }
  return sum;
}

/// Checks that up to 5 rows have the bits that few_rows_sum() has. x: 5 rows.
void expect_few_rows(const WeightLayer& layer, const std::vector<float>& x) {
  const auto residual = random_floats(5 * layer.out, 2);
  for (const Offset offset : offsets_of(layer.bits)) {
    std::vector<float> expected;
    for (int64_t i = 0; i < 5 * layer.out; ++i) {
      const float sum = few_rows_sum(layer, offset, x.data() + i / layer.out * layer.in, i % layer.out);
      expected.push_back(sum + residual[static_cast<size_t>(i)]);
    }
    for (const Isa isa : available_isas()) {
      if (isa == Isa::portable && layer.bits == 8) continue;  // does not fuse
      const auto linear = layer.make(offset, isa);
      for (int64_t rows = 1; rows <= 5; ++rows) {
        const auto y = run(*linear, layer, rows, x, residual, 2);
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(y[i], expected[i])
              << linear->name() << ", group of " << layer.group << ", " << rows << " rows, " << i;
        }
      }
    }
  }
}

/// Odd sizes, groups that are cut, words of eight that are not full, a subnormal scale, a huge one, and one that is 0.
TEST(WeightLinear, AddsFewRowsInTheSameOrderOnEveryInstructionSet) {
  struct Size {
    int64_t in, out, group;
  };
  for (const auto& [in, out, group] :
       {Size{1, 1, 2}, {90, 70, 34}, {67, 130, 32}, {256, 33, 128}, {41, 16, 6}}) {
    for (const int bits : {8, 4}) {
      WeightLayer layer(in, out, group, bits);
      layer.scale.front() = 0x1p-149F;
      layer.scale.back() = 0x1p100F;
      if (layer.scale.size() > 2) layer.scale[1] = 0;
      expect_few_rows(layer, random_floats(5 * in, 1, -2, 3));
    }
  }
}

/// Inputs of all magnitudes, of few and of one; groups of zeros; the largest ones that round to one more digit.
TEST(WeightLinear, AddsFourBitInputsOfAnyMagnitudeInDigits) {
  for (const int64_t group : {8, 26, 32, 128, 300}) {
    const WeightLayer layer(300, 37, group, 4);
    auto x = random_floats(5 * layer.in, 1, -1, 1);
    const auto exponents = random_ints<int8_t>(5 * layer.in, 8, 0, 120);
    for (int64_t k = 0; k < 5 * layer.in; ++k) {
      const auto at = static_cast<size_t>(k);
      const int64_t row = k / layer.in;
      if (row == 1) x[at] = std::ldexp(x[at], exponents[at] - 60);
      if (row == 2) x[at] = std::ldexp(x[at], -exponents[at] - 29);  // down to subnormal ones and 0
      if (row == 3) x[at] = k % layer.in < 130 ? 0 : k % 3 == 0 ? 0x1.fdfdfep5F : -0x1.fdfdfcp5F;
      if (row == 4) x[at] = std::ldexp(static_cast<float>(k % 2 * 2 - 1), k / 3 % 7 - 149);
    }
    expect_few_rows(layer, x);
  }
}

/// One scale for a long row: sums of digits times codes are larger than the integers of f32.
TEST(WeightLinear, AddsFourBitDigitsOfLongGroups) {
  WeightLayer layer(30'001, 3, 30'002, 4);
  layer.codes.assign(layer.codes.size(), 0xff);
  constexpr float kInput = -0x7e8080;  // digits of -128, -128 and -126
  const std::vector<float> x(static_cast<size_t>(5 * layer.in), kInput);
  expect_few_rows(layer, x);
  const auto y = run(*layer.make(Offset::minimum, selected_isa()), layer, 1, x, std::vector<float>(3), 1);
  const double sum = 30'001.0 * kInput;
  for (size_t c = 0; c < 3; ++c) {
    const double expected = layer.bias[c] + sum * (15 * layer.scale[c] - layer.minimum[c]);
    EXPECT_NEAR(y[c], expected, -sum * 16 * 30'000 * 0x1p-24);
  }
}

/// A layer that gives each input back: within half of what three digits of the largest one resolve.
TEST(WeightLinear, KeepsFourBitInputsTo23BitsOfTheLargestOfAGroup) {
  constexpr int64_t kIn = 96, kGroup = 32;
  WeightLayer layer(kIn, kIn, kGroup, 4);
  layer.codes.assign(layer.codes.size(), 0);
  for (int64_t k = 0; k < kIn; ++k)
    layer.codes[static_cast<size_t>((k * kIn + k) / 2)] = k % 2 == 0 ? 0x01 : 0x10;
  layer.scale.assign(layer.scale.size(), 1);
  layer.minimum.assign(layer.minimum.size(), 0);
  layer.bias.assign(layer.bias.size(), 0);
  const std::vector<float> residual(kIn);
  for (const int scale : {-140, -120, -30, 0, 30, 120}) {
    auto x = random_floats(kIn, 9 + scale, -1, 1);
    for (size_t k = 0; k < x.size(); ++k) x[k] = std::ldexp(x[k], scale - static_cast<int>(k % 5 * 6));
    for (const Isa isa : available_isas()) {
      const auto y = run(*layer.make(Offset::minimum, isa), layer, 1, x, residual, 1);
      for (int64_t g = 0; g < kIn; g += kGroup) {
        float largest = 0;
        for (int64_t k = g; k < g + kGroup; ++k)
          largest = std::max(largest, std::abs(x[static_cast<size_t>(k)]));
        for (int64_t k = g; k < g + kGroup; ++k) {
          const auto at = static_cast<size_t>(k);
          EXPECT_LE(std::abs(static_cast<double>(y[at]) - x[at]), 1.004 * 0x1p-23 * largest)
              << to_string(isa) << ", input " << k << " of 2^" << scale;
        }
      }
    }
  }
}

TEST(WeightLinear, MakesNanOfFourBitRowsThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const WeightLayer layer(67, 40, 32, 4);
  const auto finite = random_floats(5 * layer.in, 1), residual = random_floats(5 * layer.out, 2);
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    for (const Offset offset : offsets_of(4)) {
      for (const Isa isa : available_isas()) {
        const auto linear = layer.make(offset, isa);
        const auto expected = run(*linear, layer, 5, finite, residual, 1);
        for (const int64_t k : {0, 37, 66}) {
          auto x = finite;
          x[static_cast<size_t>(2 * layer.in + k)] = bad;
          const auto y = run(*linear, layer, 5, x, residual, 1);
          for (size_t i = 0; i < y.size(); ++i) {
            if (static_cast<int64_t>(i) / layer.out == 2)
              EXPECT_TRUE(std::isnan(y[i])) << linear->name() << " " << bad << " " << i;
            else
              EXPECT_EQ(y[i], expected[i]) << linear->name() << " " << bad << " " << i;
          }
        }
      }
    }
  }
}

/// Rows of a call up to 5 have the same bits, and those from 6 on.
TEST(WeightLinear, GivesTheSameForAnyNumberOfRowsThatAreFewOrMany) {
  constexpr int64_t kRows = 131;
  for (const int bits : {8, 4}) {
    const WeightLayer layer(90, 70, 34, bits);
    const auto x = random_floats(kRows * layer.in, 1), residual = random_floats(kRows * layer.out, 2);
    for (const Offset offset : offsets_of(bits)) {
      for (const Isa isa : available_isas()) {
        const auto linear = layer.make(offset, isa, Activation::gelu);
        const auto in_parts = [&](int64_t count) {
          std::vector<float> all;
          for (int64_t r = 0; r < kRows; r += count) {
            const auto of = [&](const std::vector<float>& v, int64_t width) {
              return std::vector<float>(v.begin() + r * width,
                                        v.begin() + std::min(kRows, r + count) * width);
            };
            const auto y =
                run(*linear, layer, std::min(count, kRows - r), of(x, layer.in), of(residual, layer.out), 1);
            all.insert(all.end(), y.begin(), y.end());
          }
          return all;
        };
        const auto one = in_parts(1), many = run(*linear, layer, kRows, x, residual, 3);
        for (const int64_t count : {2, 3, 4, 5}) EXPECT_EQ(in_parts(count), one) << linear->name() << count;
        for (const int64_t count : {11, 25}) EXPECT_EQ(in_parts(count), many) << linear->name() << count;
      }
    }
  }
}

/// From 6 rows on weights are those of ulp::dequantize_weight: the product is rounded before the minimum is subtracted.
TEST(WeightLinear, UnpacksMinimaInTwoSteps) {
  WeightLayer layer(90, 70, 34, 4);
  layer.scale[1] = 0;
  layer.bias.assign(layer.bias.size(), 0);
  std::vector<float> x(static_cast<size_t>(layer.in * layer.in));  // one input a row
  for (int64_t k = 0; k < layer.in; ++k) x[static_cast<size_t>(k * layer.in + k)] = 1;
  const std::vector<float> residual(static_cast<size_t>(layer.in * layer.out));
  for (const Isa isa : available_isas()) {
    if (isa == Isa::portable) continue;  // has the order of few rows
    const auto y = run(*layer.make(Offset::minimum, isa), layer, layer.in, x, residual, 2);
    for (int64_t k = 0; k < layer.in; ++k) {
      for (int64_t c = 0; c < layer.out; ++c) {
        const auto part = static_cast<size_t>(c * layer.groups + k / layer.group);
        const volatile float product = static_cast<float>(layer.code(c, k)) * layer.scale[part];  // not fused
        ASSERT_EQ(y[static_cast<size_t>(k * layer.out + c)], product - layer.minimum[part])
            << to_string(isa) << " input " << k << " channel " << c;
      }
    }
  }
}

TEST(WeightLinear, IsWithinRoundingOfFloat64OnEveryInstructionSet) {
  for (const WeightLinearCase& c : kWeightLinearCases) {
    const int64_t groups = (c.in + c.group - 1) / c.group, stored = groups * c.group;
    const auto x = random_floats(c.rows * c.in, 1, -2, 3), bias = random_floats(c.out, 2);
    const auto residual = random_floats(c.rows * c.out, 3);
    const auto scale = random_floats(c.out * groups, 4, 0.01F, 0.1F);
    const auto zero = random_ints<uint8_t>(c.out * groups, 5, 0, 15);
    const auto minimum = random_floats(c.out * groups, 7, -0.5F, 1.0F);
    const auto codes = random_ints<uint8_t>(c.out * stored / (c.bits == 4 ? 2 : 1), 6, 0, 255);
    const auto weight = [&](int64_t o, int64_t k) {
      const int64_t at = o * stored + k, part = o * groups + k / c.group;
      const double s = scale[static_cast<size_t>(part)];
      if (c.bits == 8) return static_cast<int8_t>(codes[static_cast<size_t>(at)]) * s;
      const int pair = codes[static_cast<size_t>(at / 2)], code = at % 2 == 0 ? pair & 15 : pair >> 4;
      if (c.minimum) return code * s - minimum[static_cast<size_t>(part)];
      return (code - (c.zero ? zero[static_cast<size_t>(part)] : 8)) * s;
    };
    // Codes and zero points or minima are summed apart, so that the rounding of both counts.
    const auto offset = [&](int64_t o, int64_t k) {
      const auto part = static_cast<size_t>(o * groups + k / c.group);
      if (c.minimum) return 2.0 * std::abs(minimum[part]);
      return 2.0 * scale[part] * (c.zero ? zero[part] : c.bits == 4 ? 8 : 0);
    };
    for (const Isa isa : available_isas()) {
      const auto linear = make_weight_linear({c.in, c.out, c.group, c.bits, c.activation, c.residual},
                                             {.codes = codes.data(),
                                              .scale = scale.data(),
                                              .zero = c.zero ? zero.data() : nullptr,
                                              .bias = c.bias ? bias.data() : nullptr,
                                              .minimum = c.minimum ? minimum.data() : nullptr},
                                             isa);
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
            magnitude += std::abs(product) + offset(o, k) * std::abs(x[static_cast<size_t>(r * c.in + k)]);
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

TEST(WeightLinear, AsksForNoLessWorkspaceForMoreRows) {
  for (const Isa isa : available_isas()) {
    const auto linear = WeightLayer(1, 3, 2, 4).make(Offset::zero, isa);
    for (int64_t rows = 1; rows < 9; ++rows)
      EXPECT_LE(linear->workspace_bytes(rows, 1), linear->workspace_bytes(rows + 1, 1)) << linear->name();
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
  WeightLinearWeights minima = weights;
  minima.minimum = scale.data();
  EXPECT_NO_THROW(make_weight_linear({.in = 8, .out = 2, .group = 8, .bits = 4}, minima, Isa::portable));
  constexpr int64_t kLong = (1 << 20) + 2;
  EXPECT_THROW(make_weight_linear({.in = kLong, .out = 1, .group = kLong, .bits = 4}, weights, Isa::portable),
               Error);
  EXPECT_THROW(make_weight_linear({.in = 8, .out = 2, .group = 8, .bits = 8}, minima, Isa::portable), Error);
  minima.zero = codes.data();
  EXPECT_THROW(make_weight_linear({.in = 8, .out = 2, .group = 8, .bits = 4}, minima, Isa::portable), Error);
}

}  // namespace
}  // namespace ulp::kernels
