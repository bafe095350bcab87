// Dynamic linear layers: every instruction set gives the bits of the formula in plain loops.
#include "ulp/kernels/linear/dynamic_linear.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

using namespace ulp::kernels::test;

struct DynamicLinearCase {
  int64_t rows, in, out;
  bool bias, residual, per_tensor;
  Activation activation;
};

struct DynamicLinearData {
  std::vector<float> x, scale, bias, residual;
  std::vector<int8_t> codes;
  explicit DynamicLinearData(const DynamicLinearCase& c)
      : x(random_floats(c.rows * c.in, 1, -3, 5)),
        scale(random_floats(c.out, 2, 0.001F, 0.02F)),
        bias(random_floats(c.out, 3)),
        residual(random_floats(c.rows * c.out, 4)),
        codes(random_ints<int8_t>(c.in * c.out, 5, -128, 127)) {
    // Rows of different sizes, one of them all negative.
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t k = 0; k < c.in; ++k) {
        float& v = x[static_cast<size_t>(r * c.in + k)];
        v = r % 5 == 3 ? -std::abs(v) : v * static_cast<float>(1 + r % 4);
      }
    }
  }
};

/// The documented formula, one operation at a time.
std::vector<float> plainly(const DynamicLinearCase& c, const DynamicLinearData& d) {
  std::vector<float> y(static_cast<size_t>(c.rows * c.out));
  const auto affine = [](const float* x, int64_t n) {
    float low = 0, high = 0;
    for (int64_t i = 0; i < n; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
    return dynamic_affine(low, high);
  };
  for (int64_t r = 0; r < c.rows; ++r) {
    const float* x = d.x.data() + r * c.in;
    const Affine q = c.per_tensor ? affine(d.x.data(), c.rows * c.in) : affine(x, c.in);
    const float inverse = 1.0F / q.scale;
    for (int64_t o = 0; o < c.out; ++o) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.in; ++k) {
        const float code = std::nearbyint(x[k] * inverse) + static_cast<float>(q.zero_point);
        sum += (static_cast<int64_t>(std::clamp(code, 0.0F, 255.0F)) - q.zero_point) *
               d.codes[static_cast<size_t>(o * c.in + k)];
      }
      const auto at = static_cast<size_t>(r * c.out + o);
      const float factor = q.scale * d.scale[static_cast<size_t>(o)];
      float v = static_cast<float>(sum) * factor;
      if (c.bias) v = v + d.bias[static_cast<size_t>(o)];
      if (c.residual) v = v + d.residual[at];
      y[at] = v;
    }
  }
  activate(DataType::f32, c.activation, y.data(), y.data(), c.rows * c.out, {}, Isa::portable,
           SerialParallel());
  return y;
}

std::vector<float> run(const DynamicLinearCase& c, const DynamicLinearData& d, Isa isa,
                       const Parallel& parallel) {
  const auto linear =
      make_dynamic_linear({c.in, c.out, c.activation, c.residual, c.per_tensor},
                          {d.codes.data(), d.scale.data(), c.bias ? d.bias.data() : nullptr}, isa);
  Guarded<float> y(c.rows * c.out);
  std::vector<uint8_t> memory(linear->workspace_bytes(c.rows, parallel.workers()) + 64 + 1, 0xee);
  uint8_t* workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  workspace[linear->workspace_bytes(c.rows, parallel.workers())] = 0x77;
  linear->run(c.rows, d.x.data(), d.residual.data(), y.data(), workspace, parallel);
  EXPECT_TRUE(y.intact()) << linear->name();
  EXPECT_EQ(workspace[linear->workspace_bytes(c.rows, parallel.workers())], 0x77) << linear->name();
  return y.values();
}

const DynamicLinearCase kDynamicLinearCases[] = {{1, 1, 1, true, false, false, Activation::none},
                                                 {1, 768, 64, true, false, false, Activation::tanh},
                                                 {3, 5, 7, false, false, false, Activation::relu},
                                                 {17, 64, 100, true, true, false, Activation::gelu},
                                                 {40, 131, 33, true, true, true, Activation::gelu_tanh},
                                                 {64, 48, 160, false, true, false, Activation::relu6},
                                                 {29, 300, 97, true, false, true, Activation::none}};

TEST(DynamicLinear, EveryInstructionSetAndSplitGivesTheFormulasBits) {
  for (const DynamicLinearCase& c : kDynamicLinearCases) {
    const DynamicLinearData data(c);
    const std::vector<float> expected = plainly(c, data);
    for (const Isa isa : available_isas()) {
      for (const int workers : {1, 3}) {
        const std::vector<float> got = run(c, data, isa, ThreadParallel(workers));
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
            << to_string(isa) << ", " << workers << " workers, " << c.rows << "x" << c.in << "x" << c.out
            << "; " << repeat_command();
      }
    }
  }
}

TEST(DynamicLinear, RowsThatAreNotFiniteGiveNaNAndOthersAreAsBefore) {
  const DynamicLinearCase c{4, 20, 18, true, false, false, Activation::none};
  DynamicLinearData data(c);
  const std::vector<float> before = plainly(c, data);
  data.x[1 * 20 + 7] = std::numeric_limits<float>::quiet_NaN();
  data.x[2 * 20 + 19] = -std::numeric_limits<float>::infinity();
  for (const Isa isa : available_isas()) {
    const std::vector<float> y = run(c, data, isa, SerialParallel());
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / 18;
      if (row == 1 || row == 2) {
        ASSERT_TRUE(std::isnan(y[i])) << to_string(isa) << " element " << i;
      } else {
        ASSERT_EQ(y[i], before[i]) << to_string(isa) << " element " << i;
      }
    }
  }
}

TEST(DynamicLinear, ZerosGiveTheBias) {
  const DynamicLinearCase c{2, 24, 9, true, false, false, Activation::none};
  DynamicLinearData data(c);
  std::fill(data.x.begin(), data.x.end(), 0.0F);
  for (const Isa isa : available_isas()) {
    const std::vector<float> y = run(c, data, isa, SerialParallel());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], data.bias[i % 9]) << to_string(isa);
  }
}

TEST(DynamicLinear, TheLargestSumsAreExact) {
  // 2^16 products of 255 and -128: the bound that `in` has.
  const DynamicLinearCase c{1, 1 << 16, 3, false, false, false, Activation::none};
  DynamicLinearData data(c);
  std::fill(data.x.begin(), data.x.end(), 255.0F);
  std::fill(data.codes.begin(), data.codes.end(), int8_t{-128});
  std::fill(data.scale.begin(), data.scale.end(), 1.0F);
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(run(c, data, isa, SerialParallel())[2], -2139095040.0F) << to_string(isa);
  }
}

TEST(DynamicLinear, QuantizerFollowsPyTorch) {
  // What torch.quantize_per_tensor_dynamic(x, torch.quint8, reduce_range=False) of PyTorch 2.13 chooses.
  EXPECT_EQ(dynamic_affine(-1.0F, 1.0F).zero_point, 128);  // 127.5, half to even
  EXPECT_EQ(dynamic_affine(0.0F, 255.0F).scale, 1.0F);
  EXPECT_EQ(dynamic_affine(0.0F, 255.0F).zero_point, 0);
  EXPECT_EQ(dynamic_affine(-255.0F, 0.0F).zero_point, 255);
  EXPECT_EQ(dynamic_affine(-1.0F, 3.0F).zero_point, 64);  // 63.75
  EXPECT_EQ(dynamic_affine(0.0F, 0.0F).scale, 1.0F);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(dynamic_affine(0.0F, tiny).scale, 0x1p-126F);
  EXPECT_TRUE(std::isfinite(dynamic_affine(-3e38F, 3e38F).scale));
}

TEST(DynamicLinear, RefusesWhatItCannotCompute) {
  const DynamicLinearData data({1, 4, 4, true, false, false, Activation::none});
  const DynamicLinearWeights weights{data.codes.data(), data.scale.data(), nullptr};
  EXPECT_THROW(make_dynamic_linear({.in = 0, .out = 4}, weights, Isa::portable), Error);
  EXPECT_THROW(make_dynamic_linear({.in = kMaxDynamicFeatures + 1, .out = 4}, weights, Isa::portable), Error);
  EXPECT_THROW(make_dynamic_linear({.in = 4, .out = 4}, {}, Isa::portable), Error);
}

}  // namespace
}  // namespace ulp::kernels
