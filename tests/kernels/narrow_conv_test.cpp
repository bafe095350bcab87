// f32 layers that multiply in bf16: the bits of a bf16 layer on rounded inputs, and the error that is told of them.
#include "ulp/kernels/conv/narrow_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conv_shapes.h"
#include "helpers.h"
#include "ulp/kernels/elementwise/elementwise.h"

namespace ulp::kernels {
namespace {

using test::conv_shape;
using test::random_floats;

struct ConvLayer {
  ConvConfig config;
  std::vector<float> weight, bias;

  explicit ConvLayer(const ConvShape& shape, DataType output = DataType::f32) {
    config.shape = shape;
    config.output = output;
    weight = random_floats(
        shape.out_channels * shape.in_channels / shape.groups * shape.kernel_h * shape.kernel_w, 1);
    bias = random_floats(shape.out_channels, 2);
  }
  ConvWeights weights() const { return {.f32 = weight.data(), .bias = bias.data()}; }
  int64_t inputs() const { return config.shape.in_h * config.shape.in_w * config.shape.in_channels; }
  int64_t outputs() const { return config.shape.out_h() * config.shape.out_w() * config.shape.out_channels; }
};

/// The output's elements, one after the other.
std::vector<std::byte> run(const Conv& conv, const ConvLayer& layer, int64_t batch, const void* x,
                           const float* residual, int workers) {
  std::vector<std::byte> y(static_cast<size_t>(batch * layer.outputs() * element_bytes(layer.config.output)));
  test::Workspace workspace(conv.workspace_bytes(batch, workers));
  conv.run(batch, x, residual, y.data(), workspace.data(), test::ThreadParallel(workers));
  return y;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class NarrowConv : public ::testing::TestWithParam<Isa> {};

TEST_P(NarrowConv, HasTheBitsOfABf16LayerOnRoundedInputs) {
  for (const ConvShape& shape : {conv_shape(1, 37, 19, 1, 1, 0), conv_shape(9, 13, 21, 3, 2, 1),
                                 conv_shape(7, 24, 24, 3, 1, 1, 1, 24), conv_shape(5, 3, 8, 3, 1, 1)}) {
    for (const DataType output : {DataType::f32, DataType::bf16}) {
      ConvLayer layer(shape, output);
      layer.config.residual = output == DataType::f32;
      layer.config.activation = Activation::silu;
      const int64_t batch = 3, n = batch * layer.inputs();
      const std::vector<float> x = random_floats(n, 3), residual = random_floats(batch * layer.outputs(), 4);
      std::vector<uint16_t> rounded(static_cast<size_t>(n));
      convert_f32_to_bf16(x.data(), rounded.data(), n, Isa::portable, SerialParallel());
      ConvConfig config = layer.config;
      config.input = DataType::bf16;
      const auto expected = make_conv(config, layer.weights(), GetParam());
      const auto narrow = make_narrow_conv(layer.config, layer.weights(), GetParam());
      ASSERT_NE(narrow, nullptr);
      EXPECT_EQ(narrow->name(), expected->name() + "_of_f32");
      EXPECT_EQ(run(*narrow, layer, batch, x.data(), residual.data(), 2),
                run(*expected, layer, batch, rounded.data(), residual.data(), 1))
          << test::repeat_command();
    }
  }
}

TEST_P(NarrowConv, IsOffByWhatIsToldOfIt) {
  ConvLayer layer(conv_shape(1, 256, 48, 1, 1, 0));
  layer.bias.assign(layer.bias.size(), 0.0F);
  const int64_t rows = 64;
  const std::vector<float> x = random_floats(rows * 256, 5);
  const auto wide =
      floats(run(*make_conv(layer.config, layer.weights(), GetParam()), layer, rows, x.data(), nullptr, 1));
  const auto narrow = floats(
      run(*make_narrow_conv(layer.config, layer.weights(), GetParam()), layer, rows, x.data(), nullptr, 1));
  double changes = 0, squares = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    changes += std::pow(double{narrow[i]} - double{wide[i]}, 2);
    squares += std::pow(double{wide[i]}, 2);
  }
  // What is told is of the channel where it is largest.
  const double measured = std::sqrt(changes / squares), told = narrow_error(layer.config, layer.weights());
  EXPECT_LT(measured, 1.1 * told);
  EXPECT_GT(measured, 0.8 * told);
}

INSTANTIATE_TEST_SUITE_P(Isas, NarrowConv, ::testing::ValuesIn(available_isas()), test::isa_name);

TEST(NarrowError, IsThatOfTheInputsWhereWeightsAreExact) {
  ConvLayer layer(conv_shape(1, 8, 2, 1, 1, 0));
  layer.weight.assign(layer.weight.size(), 0.5F);
  EXPECT_DOUBLE_EQ(narrow_error(layer.config, layer.weights()), 0x1p-8 / std::sqrt(7.0));
  layer.weight.assign(layer.weight.size(), 0.0F);
  EXPECT_DOUBLE_EQ(narrow_error(layer.config, layer.weights()), 0x1p-8 / std::sqrt(7.0));
  // Half way between 1 and the next number of bf16, in one of two channels.
  std::fill_n(layer.weight.begin(), 8, 1 + 0x1p-8F);
  const double off = 0x1p-8 / (1 + 0x1p-8);
  EXPECT_DOUBLE_EQ(narrow_error(layer.config, layer.weights()), std::sqrt(off * off + 0x1p-16 / 7));
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::max()}) {
    layer.weight[3] = wrong;
    EXPECT_EQ(narrow_error(layer.config, layer.weights()), std::numeric_limits<double>::infinity()) << wrong;
  }
}

TEST(NarrowConvOf, OtherNumbersIsNone) {
  ConvLayer layer(conv_shape(1, 8, 2, 1, 1, 0));
  layer.config.input = DataType::bf16;
  EXPECT_EQ(make_narrow_conv(layer.config, layer.weights(), Isa::portable), nullptr);
}

}  // namespace
}  // namespace ulp::kernels
