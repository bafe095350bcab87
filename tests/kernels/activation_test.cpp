// Every activation of the table in every kernel that takes one: a new line of the table is tested without a
// word here.
#include "ulp/base/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/conv/conv.h"
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/kernels/linear/weight_linear.h"

namespace ulp::kernels {
namespace {

using test::kSerial;

constexpr int64_t kIn = 24, kOut = 37, kRows = 19;

std::vector<Activation> activations() {
  std::vector<Activation> out;
  for (int i = 0; i < kActivationCount; ++i) out.push_back(static_cast<Activation>(i));
  return out;
}

/// Layers whose results lie around +-10.
class ActivationTest : public ::testing::TestWithParam<std::tuple<Activation, Isa>> {
 protected:
  Activation activation() const { return std::get<0>(GetParam()); }
  Isa isa() const { return std::get<1>(GetParam()); }
  std::vector<float> activated(std::vector<float> x) const {
    activate(DataType::f32, activation(), x.data(), x.data(), static_cast<int64_t>(x.size()), {}, isa(),
             kSerial);
    return x;
  }
  const std::vector<float> x_ = test::random_floats(kRows * kIn, 1, -8, 8);
  const std::vector<float> scale_ = test::random_floats(kOut, 2, 0.002F, 0.004F);
  const std::vector<int8_t> codes_ = test::random_ints<int8_t>(kIn * kOut, 3, -127, 127);
};

/// A code of `q` as the row's clamp leaves it.
uint8_t clamp_code(double code, Activation activation, const Affine& q) {
  const auto bound = [&](float real) {
    const double at = std::nearbyint(double{real / q.scale}) + q.zero_point;
    return std::min(255.0, std::max(0.0, at));
  };
  return static_cast<uint8_t>(
      std::min(bound(info_of(activation).high), std::max(bound(info_of(activation).low), code)));
}

TEST_P(ActivationTest, OfFloatsIsTheClampOrTheSameCurveEverywhere) {
  SCOPED_TRACE(test::repeat_command());
  const std::vector<float> y = activated(x_);
  std::vector<float> expected = x_;
  if (is_smooth_activation(activation())) {
    activate(DataType::f32, activation(), x_.data(), expected.data(), kRows * kIn, {}, Isa::portable,
             kSerial);
  } else {
    const ActivationInfo& row = info_of(activation());
    for (float& v : expected) v = std::min(std::max(v, row.low), row.high);
  }
  EXPECT_EQ(y, expected);
}

TEST_P(ActivationTest, OfCodesClampsOrIsRefused) {
  SCOPED_TRACE(test::repeat_command());
  const auto x = test::random_ints<uint8_t>(1000, 4, 0, 255);
  for (const Affine q : {Affine{0.1F, 50}, Affine{0.013F, 0}, Affine{0.031F, 255}}) {
    std::vector<uint8_t> y(x.size());
    const auto run = [&] {
      activate(DataType::u8, activation(), x.data(), y.data(), 1000, q, isa(), kSerial);
    };
    if (is_smooth_activation(activation())) {
      EXPECT_THROW(run(), Error);
      continue;
    }
    run();
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], clamp_code(x[i], activation(), q)) << int{x[i]};
  }
}

TEST_P(ActivationTest, AfterASumClampsOrIsRefused) {
  SCOPED_TRACE(test::repeat_command());
  std::vector<float> y(x_.size()), sum(x_.size());
  const auto run = [&] {
    add(DataType::f32, activation(), x_.data(), x_.data(), y.data(), kRows * kIn, {}, {}, {}, isa(), kSerial);
  };
  if (is_smooth_activation(activation())) {
    EXPECT_THROW(run(), Error);
    return;
  }
  run();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = x_[i] + x_[i];
  EXPECT_EQ(y, activated(sum));
}

TEST_P(ActivationTest, OfAFloatLayerFollowsItsSums) {
  SCOPED_TRACE(test::repeat_command());
  const std::vector<float> w = test::random_floats(kIn * kOut, 5);
  const auto run = [&](Activation end) {
    ConvConfig config;
    config.shape.in_channels = kIn;
    config.shape.out_channels = kOut;
    config.activation = end;
    ConvWeights weights;
    weights.f32 = w.data();
    const auto conv = make_conv(config, weights, isa());
    std::vector<float> y(kRows * kOut), workspace(conv->workspace_bytes(kRows, 1) / 4 + 16);
    auto* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    conv->run(kRows, x_.data(), nullptr, y.data(), aligned, kSerial);
    return y;
  };
  EXPECT_EQ(run(activation()), activated(run(Activation::none)));
}

TEST_P(ActivationTest, OfADynamicLayerFollowsItsSums) {
  SCOPED_TRACE(test::repeat_command());
  const auto run = [&](Activation end) {
    const auto layer = make_dynamic_linear({.in = kIn, .out = kOut, .activation = end},
                                           {.codes = codes_.data(), .scale = scale_.data()}, isa());
    std::vector<float> y(kRows * kOut), workspace(layer->workspace_bytes(kRows, 1) / 4 + 16);
    auto* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    layer->run(kRows, x_.data(), nullptr, y.data(), aligned, kSerial);
    return y;
  };
  EXPECT_EQ(run(activation()), activated(run(Activation::none)));
}

TEST_P(ActivationTest, OfCodedWeightsFollowsTheSums) {
  SCOPED_TRACE(test::repeat_command());
  const auto run = [&](Activation end) {
    const auto layer = make_weight_linear({.in = kIn, .out = kOut, .group = kIn, .activation = end},
                                          {.codes = codes_.data(), .scale = scale_.data()}, isa());
    std::vector<float> y(kRows * kOut);
    test::Workspace workspace(layer->workspace_bytes(kRows, 1));
    layer->run(kRows, x_.data(), nullptr, y.data(), workspace.data(), kSerial);
    return y;
  };
  const std::vector<float> y = run(activation()), expected = activated(run(Activation::none));
  // Products and sums may be contracted in these kernels.
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(y[i], expected[i], 4e-6 * (1 + std::abs(expected[i]))) << i;
}

TEST_P(ActivationTest, OfAnInt8LayerClampsItsCodesOrRoundsItsCurve) {
  SCOPED_TRACE(test::repeat_command());
  const auto x = test::random_ints<uint8_t>(kRows * kIn, 6, 0, 255);
  const Affine q{0.05F, 117};
  const auto run = [&]<typename Out>(Activation end, DataType output, Out) {
    ConvConfig config;
    config.shape.in_channels = kIn;
    config.shape.out_channels = kOut;
    config.input = DataType::u8;
    config.output = output;
    config.activation = end;
    config.input_q = {0.02F, 131};
    config.output_q = q;
    ConvWeights weights;
    weights.i8 = codes_.data();
    weights.scale = scale_.data();
    const auto conv = make_conv(config, weights, isa());
    std::vector<Out> y(kRows * kOut);
    std::vector<uint8_t> workspace(conv->workspace_bytes(kRows, 1) + 64);
    auto* aligned =
        reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    conv->run(kRows, x.data(), nullptr, y.data(), aligned, kSerial);
    return y;
  };
  const std::vector<uint8_t> y = run(activation(), DataType::u8, uint8_t{});
  if (is_smooth_activation(activation())) {
    const std::vector<float> numbers = activated(run(Activation::none, DataType::f32, float{}));
    std::vector<uint8_t> codes(numbers.size());
    quantize(numbers.data(), codes.data(), kRows * kOut, q, isa(), kSerial);
    EXPECT_EQ(y, codes);
    return;
  }
  const std::vector<uint8_t> all = run(Activation::none, DataType::u8, uint8_t{});
  EXPECT_GT(std::set<uint8_t>(all.begin(), all.end()).size(), 50U)
      << "mostly saturated: the test says little";
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], clamp_code(all[i], activation(), q)) << i;
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest,
                         ::testing::Combine(::testing::ValuesIn(activations()),
                                            ::testing::ValuesIn(available_isas())),
                         [](const ::testing::TestParamInfo<ActivationTest::ParamType>& info) {
                           return std::string(ulp::to_string(std::get<0>(info.param))) + "_" +
                                  to_string(std::get<1>(info.param));
                         });

TEST(ActivationTable, RowsHaveNamesOfTheirOwnAndBoundsAroundZero) {
  std::set<std::string> names;
  for (const ActivationInfo& row : kActivations) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.low <= 0 && row.high >= 0) << row.name;
    const bool free = std::isinf(row.low) && std::isinf(row.high);
    EXPECT_TRUE(row.kind == ActivationKind::clamp || free) << row.name;
  }
  EXPECT_STREQ(ulp::to_string(static_cast<Activation>(kActivationCount)), "unknown");
}

}  // namespace
}  // namespace ulp::kernels
