// Every instruction set against an oracle in double and int64 that shares no code with the kernels.
#include "ulp/kernels/conv/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "conv_shapes.h"
#include "helpers.h"

namespace ulp::kernels {
namespace {

using test::conv_shape;
using test::Guarded;

struct ConvCase {
  const char* name;
  ConvShape shape;
  int64_t batch = 1;
};

const ConvCase kConvCases[] = {
    {"first_28x28_c1", conv_shape(28, 1, 16, 3, 1, 1), 2},
    {"first_c3_k7s2", conv_shape(31, 3, 24, 7, 2, 3), 1},
    {"first_c3_k3s2", conv_shape(17, 3, 32, 3, 2, 1), 5},
    {"c16_28x28", conv_shape(28, 16, 16, 3, 1, 1), 1},
    {"c16_c32_s2", conv_shape(28, 16, 32, 3, 2, 1), 5},
    {"c32_14x14", conv_shape(14, 32, 32, 3, 1, 1), 5},
    {"c64_7x7", conv_shape(7, 64, 64, 3, 1, 1), 5},
    {"c64_4x4", conv_shape(4, 64, 80, 3, 1, 1), 1},
    {"c128_c96_9x9", conv_shape(9, 128, 96, 3, 1, 1), 1},
    {"c256_1x1_7x7", conv_shape(7, 256, 64, 1, 1, 0), 5},
    {"c64_1x1_s2", conv_shape(15, 64, 48, 1, 2, 0), 2},
    {"c5_c7_odd", {11, 13, 5, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 5},
    {"rectangular", {9, 20, 6, 10, 1, 5, 2, 3, 0, 2, 1, 1, 1}, 2},
    {"tall_kernel", {20, 9, 8, 19, 5, 1, 1, 2, 2, 0, 1, 1, 1}, 2},
    {"dilation2", conv_shape(15, 12, 20, 3, 1, 2, 2), 2},
    {"dilation3_c3", conv_shape(16, 3, 17, 3, 2, 3, 3), 2},
    {"pad_wider_than_kernel", conv_shape(5, 4, 4, 2, 1, 3), 1},
    {"kernel_is_image", conv_shape(6, 8, 33, 6, 1, 0), 5},
    {"groups2", conv_shape(10, 16, 24, 3, 1, 1, 1, 2), 2},
    {"groups4_c3_each", conv_shape(9, 12, 8, 3, 2, 1, 1, 4), 2},
    {"depthwise_c32", conv_shape(14, 32, 32, 3, 1, 1, 1, 32), 2},
    {"depthwise_c72_s2", conv_shape(15, 72, 72, 3, 2, 1, 1, 72), 2},
    {"depthwise_c19_k5", conv_shape(9, 19, 19, 5, 1, 2, 1, 19), 1},
    {"depthwise_c130_dilated", conv_shape(12, 130, 130, 3, 1, 2, 2, 130), 1},
    {"depthwise_multiplier2", conv_shape(8, 6, 12, 3, 1, 1, 1, 6), 2},
    {"linear_64_10_b1", conv_shape(1, 64, 10, 1, 1, 0), 1},
    {"linear_64_10_b5", conv_shape(1, 64, 10, 1, 1, 0), 5},
    {"linear_70_75_b1", conv_shape(1, 70, 75, 1, 1, 0), 1},  // panels side by side, and a rest of units
    {"linear_45_133_b2", conv_shape(1, 45, 133, 1, 1, 0), 2},
    {"linear_37_129_b33", conv_shape(1, 37, 129, 1, 1, 0), 33},
    {"linear_1300_40_b3", conv_shape(1, 1300, 40, 1, 1, 0), 3},
    {"blocks_of_rows", conv_shape(70, 48, 16, 3, 1, 1), 1},
    {"blocks_of_flat_pixels", conv_shape(50, 64, 20, 1, 1, 0), 1},
    {"depthwise_c8_runs", conv_shape(9, 8, 8, 3, 1, 1, 1, 8), 2},
    {"depthwise_c128_blocks", conv_shape(40, 128, 128, 3, 1, 1, 1, 128), 1},
    // Winograd's way under AVX2: patches of two images in a tile, results and channels beyond the last whole
    // block
    {"c64_c70_11x13", {11, 13, 64, 70, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 2},
    {"c80_c64_uneven_padding", {10, 13, 80, 64, 3, 3, 1, 1, 2, 0, 1, 1, 1}, 1},
    {"one_pixel_row", {1, 40, 3, 5, 1, 3, 1, 1, 0, 1, 1, 1, 1}, 2},
};

float bf16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000U;
  std::memcpy(&v, &bits, 4);
  return v;
}
uint16_t bf16_code(float v) {
  v = bf16(v);
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return static_cast<uint16_t>(bits >> 16);
}
float from_bf16_code(uint16_t code) {
  const uint32_t bits = uint32_t{code} << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

/// Calls term(sum index, x index, w index) for every product of the convolution.
template <typename F>
void each_product(const ConvShape& s, int64_t batch, F term) {
  const int64_t depth = s.in_channels / s.groups, width = s.out_channels / s.groups;
  int64_t sum = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t oh = 0; oh < s.out_h(); ++oh)
      for (int64_t ow = 0; ow < s.out_w(); ++ow)
        for (int64_t o = 0; o < s.out_channels; ++o, ++sum)
          for (int64_t i = 0; i < depth; ++i)
            for (int64_t kh = 0; kh < s.kernel_h; ++kh)
              for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
                const int64_t ih = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
                const int64_t iw = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
                if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
                term(sum, ((b * s.in_h + ih) * s.in_w + iw) * s.in_channels + o / width * depth + i,
                     ((o * depth + i) * s.kernel_h + kh) * s.kernel_w + kw);
              }
}

int64_t in_size(const ConvCase& c) {
  return c.batch * c.shape.in_h * c.shape.in_w * c.shape.in_channels;
}
int64_t out_size(const ConvCase& c) {
  return c.batch * c.shape.out_h() * c.shape.out_w() * c.shape.out_channels;
}
int64_t depth(const ConvShape& s) {
  return s.in_channels / s.groups * s.kernel_h * s.kernel_w;
}

/// Runs into a guarded buffer, with a workspace of exactly the promised size.
template <typename Out>
std::vector<Out> run(const Conv& conv, const ConvCase& c, const void* x, const void* residual,
                     const Parallel& parallel = SerialParallel()) {
  Guarded<Out> y(out_size(c));
  const size_t bytes = conv.workspace_bytes(c.batch, parallel.workers());
  Guarded<uint8_t> workspace(static_cast<int64_t>(bytes) + 64);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  conv.run(c.batch, x, residual, y.data(), aligned, parallel);
  EXPECT_TRUE(y.intact()) << "wrote outside the output";
  EXPECT_TRUE(workspace.intact()) << "wrote outside the workspace";
  return y.values();
}

class ConvTest : public ::testing::TestWithParam<std::tuple<Isa, size_t>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  const ConvCase& c() const { return kConvCases[std::get<1>(GetParam())]; }
};

struct Int8Data {
  std::vector<uint8_t> x, residual;
  std::vector<int8_t> w;
  std::vector<float> scale;
  std::vector<int32_t> bias;
  ConvConfig config;
  ConvWeights weights() const {
    ConvWeights out;
    out.i8 = w.data();
    out.scale = scale.data();
    out.bias_i32 = bias.data();
    return out;
  }
};

Int8Data int8_data(const ConvCase& c, Activation activation, bool with_residual, DataType output) {
  Int8Data d;
  const int64_t k = depth(c.shape);
  d.x = test::random_ints<uint8_t>(in_size(c), 1, 0, 255);
  d.w = test::random_ints<int8_t>(c.shape.out_channels * k, 2, -127, 127);
  d.scale = test::random_floats(c.shape.out_channels, 3, 0.001F, 0.01F);
  d.bias = test::random_ints<int32_t>(c.shape.out_channels, 4, -20000, 20000);
  d.residual = test::random_ints<uint8_t>(out_size(c), 5, 0, 255);
  d.config.shape = c.shape;
  d.config.input = DataType::u8;
  d.config.output = output;
  d.config.activation = activation;
  d.config.residual = with_residual;
  d.config.residual_type = DataType::u8;
  d.config.input_q = {0.02F, 131};
  // Wide enough that most results fall between the clamps.
  d.config.output_q = {static_cast<float>(0.02 * 0.005 * 5000 * std::sqrt(static_cast<double>(k)) / 60), 117};
  d.config.residual_q = {d.config.output_q.scale * 0.37F, 90};
  return d;
}

std::vector<float> int8_oracle_values(const Int8Data& d, const ConvCase& c) {
  std::vector<int64_t> sums(static_cast<size_t>(out_size(c)));
  const int64_t n = c.shape.out_channels;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = d.bias[i % static_cast<size_t>(n)];
  each_product(c.shape, c.batch, [&](int64_t s, int64_t x, int64_t w) {
    sums[static_cast<size_t>(s)] +=
        (int64_t{d.x[static_cast<size_t>(x)]} - d.config.input_q.zero_point) * d.w[static_cast<size_t>(w)];
  });
  std::vector<float> values(sums.size());
  const bool u8 = d.config.output == DataType::u8;
  const float unit = u8 ? d.config.output_q.scale : 1.0F;
  for (size_t i = 0; i < sums.size(); ++i) {
    float m = d.config.input_q.scale * d.scale[i % static_cast<size_t>(n)];
    if (u8) m = m / unit;
    const volatile float product = static_cast<float>(sums[i]) * m;  // volatile: no fused multiply-add
    float v = product;
    if (d.config.residual) {
      const volatile float r = static_cast<float>(d.residual[i] - d.config.residual_q.zero_point) *
                               (d.config.residual_q.scale / unit);
      v += r;
    }
    if (d.config.activation != Activation::none) v = std::max(v, 0.0F);
    if (d.config.activation == Activation::relu6) v = std::min(v, 6.0F / unit);
    values[i] = v;
  }
  return values;
}

TEST_P(ConvTest, Int8IsExact) {
  SCOPED_TRACE(test::repeat_command());
  for (Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
    for (bool residual : {false, true}) {
      const Int8Data d = int8_data(c(), activation, residual, DataType::u8);
      const auto conv = make_conv(d.config, d.weights(), isa());
      SCOPED_TRACE(conv->name());
      const std::vector<float> values = int8_oracle_values(d, c());
      const auto y = run<uint8_t>(*conv, c(), d.x.data(), d.residual.data());
      int64_t wrong = 0, saturated = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double q = std::nearbyint(static_cast<double>(values[i])) + d.config.output_q.zero_point;
        const auto expected = static_cast<uint8_t>(std::min(255.0, std::max(0.0, q)));
        if (y[i] != expected && wrong++ == 0) {
          ADD_FAILURE() << "first wrong at " << i << ": expected " << int{expected} << " got " << int{y[i]};
        }
        saturated += expected == 0 || expected == 255;
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_LT(saturated * 2, static_cast<int64_t>(y.size()))
          << "a test of mostly clamped values says little";
    }
  }
}

TEST_P(ConvTest, Int8ToFloatIsExact) {
  SCOPED_TRACE(test::repeat_command());
  for (bool residual : {false, true}) {
    const Int8Data d =
        int8_data(c(), residual ? Activation::relu : Activation::none, residual, DataType::f32);
    const auto conv = make_conv(d.config, d.weights(), isa());
    SCOPED_TRACE(conv->name());
    EXPECT_EQ(run<float>(*conv, c(), d.x.data(), d.residual.data()), int8_oracle_values(d, c()));
  }
}

// The largest products of both signs: a kernel that saturates between the steps would show it here.
TEST_P(ConvTest, Int8NeverSaturatesInside) {
  SCOPED_TRACE(test::repeat_command());
  for (int weight : {-128, 127}) {
    Int8Data d = int8_data(c(), Activation::none, false, DataType::f32);
    std::fill(d.x.begin(), d.x.end(), uint8_t{255});
    std::fill(d.w.begin(), d.w.end(), static_cast<int8_t>(weight));
    d.config.input_q.zero_point = 0;
    const auto conv = make_conv(d.config, d.weights(), isa());
    SCOPED_TRACE(conv->name());
    EXPECT_EQ(run<float>(*conv, c(), d.x.data(), nullptr), int8_oracle_values(d, c()));
  }
}

struct FloatOracle {
  std::vector<double> value, magnitude;
};
FloatOracle float_oracle(const ConvCase& c, const std::vector<float>& x, const std::vector<float>& w,
                         const std::vector<float>& bias) {
  FloatOracle out;
  const size_t n = static_cast<size_t>(out_size(c));
  out.value.resize(n);
  out.magnitude.resize(n);
  for (size_t i = 0; i < n; ++i) {
    out.value[i] = bias[i % static_cast<size_t>(c.shape.out_channels)];
    out.magnitude[i] = std::abs(out.value[i]);
  }
  each_product(c.shape, c.batch, [&](int64_t s, int64_t xi, int64_t wi) {
    const double p = static_cast<double>(x[static_cast<size_t>(xi)]) * w[static_cast<size_t>(wi)];
    out.value[static_cast<size_t>(s)] += p;
    out.magnitude[static_cast<size_t>(s)] += std::abs(p);
  });
  return out;
}

/// |error| <= (K + 2) eps * sum |x w| for any order of summation (Higham, Accuracy and Stability, 3.1), then
/// the rounding of the residual's sum and of the stored format. eps is doubled for instructions that do not
/// round each product to nearest (vdpbf16ps, tiles); they also flush subnormal terms.
void check_floats(const ConvCase& c, const FloatOracle& o, const std::vector<float>& residual, bool relu,
                  const std::vector<float>& y, double store_eps) {
  const double eps = 2 * std::numeric_limits<float>::epsilon();
  const double flushed = static_cast<double>(depth(c.shape)) * std::numeric_limits<float>::min();
  for (size_t i = 0; i < y.size(); ++i) {
    double expected = o.value[i] + (residual.empty() ? 0.0 : static_cast<double>(residual[i]));
    const double size =
        o.magnitude[i] + (residual.empty() ? 0.0 : std::abs(static_cast<double>(residual[i])));
    if (relu) expected = std::max(expected, 0.0);
    const double bound = static_cast<double>(depth(c.shape) + 3) * eps * size + flushed +
                         store_eps * (std::abs(expected) + eps * size);
    ASSERT_LE(std::abs(static_cast<double>(y[i]) - expected), bound)
        << "at " << i << ", expected " << expected;
  }
}

TEST_P(ConvTest, FloatIsWithinTheBound) {
  SCOPED_TRACE(test::repeat_command());
  const ConvShape& s = c().shape;
  const auto x = test::random_floats(in_size(c()), 1), w = test::random_floats(s.out_channels * depth(s), 2);
  const auto bias = test::random_floats(s.out_channels, 3), r = test::random_floats(out_size(c()), 4);
  const FloatOracle oracle = float_oracle(c(), x, w, bias);
  for (bool fused : {false, true}) {
    ConvConfig config;
    config.shape = s;
    config.activation = fused ? Activation::relu : Activation::none;
    config.residual = fused;
    ConvWeights weights;
    weights.f32 = w.data();
    weights.bias = bias.data();
    const auto conv = make_conv(config, weights, isa());
    SCOPED_TRACE(conv->name());
    check_floats(c(), oracle, fused ? r : std::vector<float>(), fused,
                 run<float>(*conv, c(), x.data(), r.data()), 0);
  }
}

TEST_P(ConvTest, Bf16IsWithinTheBound) {
  SCOPED_TRACE(test::repeat_command());
  const ConvShape& s = c().shape;
  auto x = test::random_floats(in_size(c()), 1), r = test::random_floats(out_size(c()), 4);
  const auto w = test::random_floats(s.out_channels * depth(s), 2),
             bias = test::random_floats(s.out_channels, 3);
  std::vector<uint16_t> x16, r16;
  for (float& v : x) x16.push_back(bf16_code(v)), v = bf16(v);
  for (float& v : r) r16.push_back(bf16_code(v)), v = bf16(v);
  std::vector<float> rounded = w;
  for (float& v : rounded) v = bf16(v);
  const FloatOracle oracle = float_oracle(c(), x, rounded, bias);
  for (DataType output : {DataType::bf16, DataType::f32}) {
    ConvConfig config;
    config.shape = s;
    config.input = DataType::bf16;
    config.output = output;
    config.activation = Activation::relu;
    config.residual = true;
    config.residual_type = DataType::bf16;
    ConvWeights weights;
    weights.f32 = w.data();
    weights.bias = bias.data();
    const auto conv = make_conv(config, weights, isa());
    SCOPED_TRACE(conv->name());
    if (output == DataType::f32) {
      check_floats(c(), oracle, r, true, run<float>(*conv, c(), x16.data(), r16.data()), 0);
    } else {
      std::vector<float> y;
      for (uint16_t code : run<uint16_t>(*conv, c(), x16.data(), r16.data()))
        y.push_back(from_bf16_code(code));
      check_floats(c(), oracle, r, true, y, std::ldexp(1.0, -8));
    }
  }
}

TEST_P(ConvTest, ThreeWorkersGiveTheSameBits) {
  SCOPED_TRACE(test::repeat_command());
  const test::ThreadParallel three(3);
  const Int8Data d = int8_data(c(), Activation::relu, true, DataType::u8);
  const auto integer = make_conv(d.config, d.weights(), isa());
  EXPECT_EQ(run<uint8_t>(*integer, c(), d.x.data(), d.residual.data()),
            run<uint8_t>(*integer, c(), d.x.data(), d.residual.data(), three));
  const auto x = test::random_floats(in_size(c()), 1);
  const auto w = test::random_floats(c().shape.out_channels * depth(c().shape), 2);
  ConvConfig config;
  config.shape = c().shape;
  ConvWeights weights;
  weights.f32 = w.data();
  const auto floats = make_conv(config, weights, isa());
  EXPECT_EQ(run<float>(*floats, c(), x.data(), nullptr), run<float>(*floats, c(), x.data(), nullptr, three));
}

// Every kind of residual in every kind of layer, in place of the output: the engine reuses the buffer.
TEST_P(ConvTest, AnyResidualAsPortableAndInPlace) {
  SCOPED_TRACE(test::repeat_command());
  const Int8Data d = int8_data(c(), Activation::relu, true, DataType::u8);
  const auto wide = test::random_floats(out_size(c()), 6, -2, 2);
  std::vector<uint16_t> half;
  for (float v : wide) half.push_back(bf16_code(v));
  for (DataType output : {DataType::u8, DataType::f32}) {
    for (DataType residual : {DataType::u8, DataType::bf16, DataType::f32}) {
      ConvConfig config = d.config;
      config.output = output;
      config.residual_type = residual;
      const void* data = residual == DataType::u8     ? static_cast<const void*>(d.residual.data())
                         : residual == DataType::bf16 ? static_cast<const void*>(half.data())
                                                      : static_cast<const void*>(wide.data());
      const auto plain = make_conv(config, d.weights(), Isa::portable),
                 fast = make_conv(config, d.weights(), isa());
      SCOPED_TRACE(fast->name());
      if (output == DataType::f32) {
        EXPECT_EQ(run<float>(*plain, c(), d.x.data(), data), run<float>(*fast, c(), d.x.data(), data));
        continue;
      }
      const auto expected = run<uint8_t>(*plain, c(), d.x.data(), data);
      EXPECT_EQ(expected, run<uint8_t>(*fast, c(), d.x.data(), data));
      if (residual != DataType::u8) continue;
      std::vector<uint8_t> y = d.residual, workspace(fast->workspace_bytes(c().batch, 1) + 64);
      auto* aligned =
          reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
      fast->run(c().batch, d.x.data(), y.data(), y.data(), aligned, SerialParallel());
      EXPECT_EQ(expected, y);
    }
  }
}

/// Codes of f32 results by the contract: times float(1 / scale), half to even.
std::vector<uint8_t> codes_of(const std::vector<float>& values, const Affine& q) {
  std::vector<uint8_t> codes;
  for (const float v : values) {
    const volatile float scaled = v * (1.0F / q.scale);
    const double code = std::nearbyint(double{scaled}) + q.zero_point;
    codes.push_back(static_cast<uint8_t>(std::min(255.0, std::max(0.0, code))));
  }
  return codes;
}

// f32 results end in the curve; codes and bf16 are those results rounded once.
TEST_P(ConvTest, CurvesOfCodesAreRoundedFromTheirNumbers) {
  SCOPED_TRACE(test::repeat_command());
  for (const Activation curve : {Activation::hardswish, Activation::gelu}) {
    for (const bool with_residual : {false, true}) {
      Int8Data d = int8_data(c(), curve, with_residual, DataType::f32);
      const auto floats = make_conv(d.config, d.weights(), Isa::portable);
      const std::vector<float> numbers = run<float>(*floats, c(), d.x.data(), d.residual.data());
      const auto fast = make_conv(d.config, d.weights(), isa());
      EXPECT_EQ(numbers, run<float>(*fast, c(), d.x.data(), d.residual.data())) << fast->name();
      d.config.output = DataType::u8;
      const auto codes = make_conv(d.config, d.weights(), isa());
      EXPECT_EQ(codes_of(numbers, d.config.output_q),
                run<uint8_t>(*codes, c(), d.x.data(), d.residual.data()))
          << codes->name();
    }
  }
}

TEST_P(ConvTest, CurvesOfBf16AreRoundedFromTheirNumbers) {
  SCOPED_TRACE(test::repeat_command());
  const auto x = test::random_floats(in_size(c()), 1), r = test::random_floats(out_size(c()), 2);
  const auto w = test::random_floats(c().shape.out_channels * depth(c().shape), 3);
  std::vector<uint16_t> x16;
  for (const float v : x) x16.push_back(bf16_code(v));
  ConvWeights weights;
  weights.f32 = w.data();
  for (const DataType input : {DataType::bf16, DataType::f32}) {
    ConvConfig config;
    config.shape = c().shape;
    config.input = input;
    config.activation = Activation::silu;
    config.residual = true;
    const void* data = input == DataType::bf16 ? static_cast<const void*>(x16.data()) : x.data();
    const auto floats = make_conv(config, weights, isa());
    const std::vector<float> numbers = run<float>(*floats, c(), data, r.data());
    config.output = DataType::bf16;
    const auto half = make_conv(config, weights, isa());
    const std::vector<uint16_t> got = run<uint16_t>(*half, c(), data, r.data());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], bf16_code(numbers[i])) << half->name() << " " << i;
  }
}

std::vector<size_t> all_cases() {
  std::vector<size_t> out(std::size(kConvCases));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i;
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, ConvTest,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::ValuesIn(all_cases())),
                         [](const ::testing::TestParamInfo<ConvTest::ParamType>& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  kConvCases[std::get<1>(info.param)].name;
                         });

TEST(ConvBf16, NanAndInfinityStayWhereTheyAre) {
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(to_string(isa));
    const ConvCase c{"", conv_shape(9, 3, 16, 3, 1, 1), 1};
    std::vector<uint16_t> x(static_cast<size_t>(in_size(c)), bf16_code(0.5F));
    x[static_cast<size_t>((4 * 9 + 4) * 3)] = bf16_code(std::numeric_limits<float>::infinity());
    const std::vector<float> w(16 * 27, 1.0F);
    ConvConfig config;
    config.shape = c.shape;
    config.input = config.output = DataType::bf16;
    ConvWeights weights;
    weights.f32 = w.data();
    const auto y = run<uint16_t>(*make_conv(config, weights, isa), c, x.data(), nullptr);
    for (int64_t h = 0; h < 9; ++h) {
      for (int64_t col = 0; col < 9; ++col) {
        const bool near = std::abs(h - 4) <= 1 && std::abs(col - 4) <= 1;
        const float v = from_bf16_code(y[static_cast<size_t>((h * 9 + col) * 16)]);
        EXPECT_EQ(std::isinf(v), near) << h << "," << col;
        EXPECT_FALSE(std::isnan(v)) << h << "," << col;
      }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
