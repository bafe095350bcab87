// Elementwise operations, pooling, softmax and layout changes on every instruction set, against plain loops
// in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "helpers.h"
#include "ulp/base/error.h"
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/image/layout.h"
#include "ulp/kernels/image/pool.h"

namespace ulp::kernels {
namespace {

using test::kInf;
using test::kSerial;

const float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t bits(float v) {
  uint32_t b;
  std::memcpy(&b, &v, 4);
  return b;
}
float from_bf16(uint16_t code) {
  const uint32_t b = uint32_t{code} << 16;
  float v;
  std::memcpy(&v, &b, 4);
  return v;
}
uint8_t saturate(double v) {
  return static_cast<uint8_t>(std::min(255.0, std::max(0.0, v)));
}

class SmallOps : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, SmallOps, ::testing::ValuesIn(available_isas()), test::isa_name);

TEST_P(SmallOps, AllBf16CodesGoThereAndBack) {
  std::vector<uint16_t> codes(65536), back(65536);
  std::vector<float> wide(65536);
  for (int i = 0; i < 65536; ++i) codes[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
  convert_bf16_to_f32(codes.data(), wide.data(), 65536, GetParam(), kSerial);
  convert_f32_to_bf16(wide.data(), back.data(), 65536, GetParam(), kSerial);
  for (int i = 0; i < 65536; ++i) {
    const size_t k = static_cast<size_t>(i);
    EXPECT_EQ(bits(wide[k]), static_cast<uint32_t>(i) << 16);
    const bool nan = (i & 0x7fff) > 0x7f80;
    EXPECT_EQ(back[k], nan ? codes[k] | 0x40 : codes[k]);
  }
}

TEST_P(SmallOps, Bf16RoundsHalfToEven) {
  std::vector<float> x;
  std::vector<uint16_t> expected;
  for (uint32_t code : {0x3f80U, 0x3f81U, 0xbf80U, 0x0000U, 0x7f7fU}) {
    for (uint32_t low : {0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      float v;
      const uint32_t b = code << 16 | low;
      std::memcpy(&v, &b, 4);
      x.push_back(v);
      const bool up = low > 0x8000U || (low == 0x8000U && (code & 1) != 0);
      expected.push_back(static_cast<uint16_t>(code + up));
    }
  }
  float signalling;
  const uint32_t b = 0x7f800001U;  // truncating this NaN would make an infinity
  std::memcpy(&signalling, &b, 4);
  x.push_back(signalling);
  expected.push_back(0x7fc0);
  std::vector<uint16_t> y(x.size());
  convert_f32_to_bf16(x.data(), y.data(), static_cast<int64_t>(x.size()), GetParam(), kSerial);
  EXPECT_EQ(y, expected);
}

TEST_P(SmallOps, QuantizeRoundsHalfToEvenAndClamps) {
  const Affine q{0.25F, 10};
  const std::vector<float> x = {0,    0.125F, 0.375F, -0.125F, -0.375F, 100,  -100,
                                kInf, -kInf,  kNan,   61.25F,  1e30F,   0.26F};
  const std::vector<uint8_t> expected = {10, 10, 12, 10, 8, 255, 0, 255, 0, 0, 255, 255, 11};
  test::Guarded<uint8_t> y(static_cast<int64_t>(x.size()));
  quantize(x.data(), y.data(), static_cast<int64_t>(x.size()), q, GetParam(), kSerial);
  EXPECT_EQ(y.values(), expected);
  EXPECT_TRUE(y.intact());
}

TEST_P(SmallOps, DequantizeOfAllCodes) {
  const Affine q{0.037F, 77};
  std::vector<uint8_t> x(256);
  std::vector<float> y(256);
  for (size_t i = 0; i < 256; ++i) x[i] = static_cast<uint8_t>(i);
  dequantize(x.data(), y.data(), 256, q, GetParam(), kSerial);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], static_cast<float>(i - 77) * 0.037F);
  std::vector<uint8_t> back(256);
  quantize(y.data(), back.data(), 256, q, GetParam(), kSerial);
  EXPECT_EQ(back, x);
}

TEST_P(SmallOps, AddOfBytesIsExactForAllPairs) {
  const Affine aq{0.03F, 100}, bq{0.05F, 140}, yq{0.06F, 120};
  std::vector<uint8_t> a(65536), b(65536), y(65536);
  for (size_t i = 0; i < 65536; ++i) a[i] = static_cast<uint8_t>(i), b[i] = static_cast<uint8_t>(i >> 8);
  for (Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
    add(DataType::u8, activation, a.data(), b.data(), y.data(), 65536, aq, bq, yq, GetParam(),
        test::ThreadParallel(3));
    for (size_t i = 0; i < 65536; ++i) {
      const volatile float left = static_cast<float>(a[i] - 100) * (0.03F / 0.06F);
      const volatile float right = static_cast<float>(b[i] - 140) * (0.05F / 0.06F);
      float v = left + right;
      if (activation != Activation::none) v = std::max(v, 0.0F);
      if (activation == Activation::relu6) v = std::min(v, 6.0F / 0.06F);
      ASSERT_EQ(y[i], saturate(std::nearbyint(static_cast<double>(v)) + 120)) << i;
    }
  }
}

TEST_P(SmallOps, AddAndActivateOfFloats) {
  const int64_t n = 1003;
  auto a = test::random_floats(n, 1, -8, 8), b = test::random_floats(n, 2, -8, 8);
  a[5] = kNan;
  a[6] = kInf;
  for (Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
    test::Guarded<float> y(n), z(n);
    add(DataType::f32, activation, a.data(), b.data(), y.data(), n, {}, {}, {}, GetParam(), kSerial);
    activate(DataType::f32, activation, a.data(), z.data(), n, {}, GetParam(), kSerial);
    EXPECT_TRUE(y.intact() && z.intact());
    EXPECT_TRUE(std::isnan(y.values()[5]) && std::isnan(z.values()[5]));
    for (size_t i = 6; i < static_cast<size_t>(n); ++i) {
      float sum = a[i] + b[i], x = a[i];
      if (activation != Activation::none) sum = std::max(sum, 0.0F), x = std::max(x, 0.0F);
      if (activation == Activation::relu6) sum = std::min(sum, 6.0F), x = std::min(x, 6.0F);
      ASSERT_EQ(y.values()[i], sum);
      ASSERT_EQ(z.values()[i], x);
    }
  }
}

TEST_P(SmallOps, AddAndActivateOfBf16) {
  const int64_t n = 519;
  const auto a = test::random_ints<uint16_t>(n, 1, 0x3e00, 0x4100),
             b = test::random_ints<uint16_t>(n, 2, 0xbe00, 0xc100);
  std::vector<uint16_t> y(a.size()), z(a.size()), rounded(a.size());
  add(DataType::bf16, Activation::relu, a.data(), b.data(), y.data(), n, {}, {}, {}, GetParam(), kSerial);
  activate(DataType::bf16, Activation::relu6, a.data(), z.data(), n, {}, GetParam(), kSerial);
  for (size_t i = 0; i < a.size(); ++i) {
    const float sum = std::max(from_bf16(a[i]) + from_bf16(b[i]), 0.0F);
    // Half a unit in the last of eight bits.
    ASSERT_LE(std::abs(from_bf16(y[i]) - sum), std::abs(sum) * std::ldexp(1.0F, -8));
    ASSERT_EQ(from_bf16(z[i]), std::min(from_bf16(a[i]), 6.0F));
  }
}

TEST_P(SmallOps, ActivateAndRequantizeBytes) {
  std::vector<uint8_t> x(256), y(256);
  for (size_t i = 0; i < 256; ++i) x[i] = static_cast<uint8_t>(i);
  activate(DataType::u8, Activation::relu, x.data(), y.data(), 256, {0.1F, 50}, GetParam(), kSerial);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], std::max(i, 50));
  activate(DataType::u8, Activation::relu6, x.data(), y.data(), 256, {0.1F, 50}, GetParam(), kSerial);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], std::min(std::max(i, 50), 110));
  requantize(x.data(), y.data(), 256, {0.1F, 50}, {0.2F, 3}, GetParam(), kSerial);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(i)], saturate(std::nearbyint((i - 50) * 0.5) + 3));
  }
}

TEST_P(SmallOps, SoftmaxIsCloseToDouble) {
  for (int64_t columns : {1, 2, 10, 16, 17, 100, 1000}) {
    const int64_t rows = 7;
    const auto x = test::random_floats(rows * columns, static_cast<uint32_t>(columns), -20, 20);
    test::Guarded<float> y(rows * columns);
    softmax(DataType::f32, x.data(), y.data(), rows, columns, GetParam(), test::ThreadParallel(2));
    EXPECT_TRUE(y.intact());
    for (int64_t r = 0; r < rows; ++r) {
      double largest = -1e30, sum = 0;
      for (int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, double{x[static_cast<size_t>(r * columns + i)]});
      for (int64_t i = 0; i < columns; ++i)
        sum += std::exp(double{x[static_cast<size_t>(r * columns + i)]} - largest);
      for (int64_t i = 0; i < columns; ++i) {
        const double expected = std::exp(double{x[static_cast<size_t>(r * columns + i)]} - largest) / sum;
        // The argument of exp is rounded (40 eps / 2), exp is good to 4 eps, the sum adds at most columns /
        // 16 + 16.
        const double eps = std::numeric_limits<float>::epsilon();
        const double bound = expected * eps * (20 + 4 + 4 + static_cast<double>(columns) / 16 + 16);
        ASSERT_NEAR(y.data()[r * columns + i], expected, bound);
      }
    }
  }
}

TEST_P(SmallOps, SoftmaxOfExtremesAndBf16) {
  const std::vector<float> x = {-kInf, 0, 1000, -1000};
  std::vector<float> y(4);
  softmax(DataType::f32, x.data(), y.data(), 1, 4, GetParam(), kSerial);
  EXPECT_EQ(y, (std::vector<float>{0, 0, 1, 0}));
  const std::vector<float> with_nan = {1, kNan, 2};
  softmax(DataType::f32, with_nan.data(), y.data(), 1, 3, GetParam(), kSerial);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i]));
  const std::vector<uint16_t> half = {0x3f80, 0x3f80};
  std::vector<uint16_t> out(2);
  softmax(DataType::bf16, half.data(), out.data(), 1, 2, GetParam(), kSerial);
  EXPECT_EQ(out, (std::vector<uint16_t>{0x3f00, 0x3f00}));
}

struct PoolCase {
  PoolShape shape;
  int64_t batch;
};
std::vector<PoolCase> pool_cases() {
  return {{{28, 28, 16, 2, 2, 2, 2}, 2},
          {{15, 11, 5, 3, 3, 2, 2, 1, 1}, 2},
          {{9, 9, 300, 3, 3, 1, 1, 1, 1}, 1},
          {{10, 7, 19, 3, 2, 2, 3, 1, 0, 1, 1, true}, 3},
          {{7, 7, 64, 7, 7, 1, 1}, 5},
          {{6, 6, 33, 2, 2, 2, 2, 1, 1, 1, 1, true}, 1},
          {{12, 12, 8, 3, 3, 2, 2, 1, 1, 2, 2}, 1}};
}

/// Calls term(output, input) for every pair of the pooling; term(output, -1) for padding that counts.
template <typename F>
void each_window(const PoolShape& s, int64_t batch, F term) {
  int64_t out = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t oh = 0; oh < s.out_h(); ++oh)
      for (int64_t ow = 0; ow < s.out_w(); ++ow)
        for (int64_t c = 0; c < s.channels; ++c, ++out)
          for (int64_t kh = 0; kh < s.kernel_h; ++kh)
            for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const int64_t h = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
              const int64_t w = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
              const bool in = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w;
              if (h >= s.in_h + s.pad_h || w >= s.in_w + s.pad_w) continue;
              term(out, in ? ((b * s.in_h + h) * s.in_w + w) * s.channels + c : -1);
            }
}

TEST_P(SmallOps, MaxPoolTakesTheLargest) {
  for (const PoolCase& p : pool_cases()) {
    const PoolShape& s = p.shape;
    ASSERT_NO_THROW(check_pool(s));
    const int64_t in = p.batch * s.in_h * s.in_w * s.channels,
                  out = p.batch * s.out_h() * s.out_w() * s.channels;
    const auto x8 = test::random_ints<uint8_t>(in, 1, 0, 255);
    const auto x32 = test::random_floats(in, 2, -5, -1);
    std::vector<uint16_t> x16;
    for (float v : x32) x16.push_back(static_cast<uint16_t>(bits(v) >> 16));
    std::vector<uint8_t> e8(static_cast<size_t>(out), 0);
    std::vector<float> e32(static_cast<size_t>(out), -kInf), e16 = e32;
    each_window(s, p.batch, [&](int64_t o, int64_t i) {
      if (i < 0) return;
      const size_t to = static_cast<size_t>(o), from = static_cast<size_t>(i);
      e8[to] = std::max(e8[to], x8[from]);
      e32[to] = std::max(e32[to], x32[from]);
      e16[to] = std::max(e16[to], from_bf16(x16[from]));
    });
    test::Guarded<uint8_t> y8(out);
    test::Guarded<float> y32(out);
    test::Guarded<uint16_t> y16(out);
    max_pool(DataType::u8, s, p.batch, x8.data(), y8.data(), GetParam(), test::ThreadParallel(3));
    max_pool(DataType::f32, s, p.batch, x32.data(), y32.data(), GetParam(), kSerial);
    max_pool(DataType::bf16, s, p.batch, x16.data(), y16.data(), GetParam(), kSerial);
    EXPECT_TRUE(y8.intact() && y32.intact() && y16.intact());
    EXPECT_EQ(y8.values(), e8);
    EXPECT_EQ(y32.values(), e32);
    for (size_t i = 0; i < e16.size(); ++i) ASSERT_EQ(from_bf16(y16.data()[i]), e16[i]);
  }
}

TEST_P(SmallOps, MaxPoolKeepsANanFirstOrLast) {
  for (int64_t channels : {1, 16, 64, 81}) {
    for (int64_t at = 0; at < 4; ++at) {
      std::vector<float> x(static_cast<size_t>(4 * channels), 1.0F), y(static_cast<size_t>(channels));
      std::vector<uint16_t> x16(x.size(), 0x3f80), y16(y.size());
      for (int64_t c = 0; c < channels; ++c) {
        x[static_cast<size_t>(at * channels + c)] = kNan;
        x16[static_cast<size_t>(at * channels + c)] = 0x7fc0;
      }
      const PoolShape shape{2, 2, channels, 2, 2, 2, 2};
      max_pool(DataType::f32, shape, 1, x.data(), y.data(), GetParam(), kSerial);
      max_pool(DataType::bf16, shape, 1, x16.data(), y16.data(), GetParam(), kSerial);
      for (float v : y) EXPECT_TRUE(std::isnan(v));
      for (uint16_t v : y16) EXPECT_EQ(v, 0x7fc0);
    }
  }
}

TEST_P(SmallOps, AvgPoolDividesByTheRightCount) {
  const Affine xq{0.1F, 60}, yq{0.07F, 30};
  for (const PoolCase& p : pool_cases()) {
    const PoolShape& s = p.shape;
    if (s.dilation_h != 1) continue;
    for (bool include_pad : {false, true}) {
      const int64_t in = p.batch * s.in_h * s.in_w * s.channels,
                    out = p.batch * s.out_h() * s.out_w() * s.channels;
      const auto x8 = test::random_ints<uint8_t>(in, 1, 0, 255);
      const auto x32 = test::random_floats(in, 2);
      std::vector<double> sum(static_cast<size_t>(out)), size = sum, count = sum;
      std::vector<int> sum8(static_cast<size_t>(out));
      each_window(s, p.batch, [&](int64_t o, int64_t i) {
        const size_t to = static_cast<size_t>(o), from = static_cast<size_t>(i);
        if (i >= 0) sum[to] += x32[from], size[to] += std::abs(x32[from]), sum8[to] += x8[from] - 60;
        count[to] += i >= 0 || include_pad;
      });
      test::Guarded<float> y32(out);
      test::Guarded<uint8_t> y8(out);
      avg_pool(DataType::f32, s, include_pad, p.batch, x32.data(), y32.data(), {}, {}, GetParam(), kSerial);
      avg_pool(DataType::u8, s, include_pad, p.batch, x8.data(), y8.data(), xq, yq, GetParam(),
               test::ThreadParallel(2));
      EXPECT_TRUE(y8.intact() && y32.intact());
      for (size_t i = 0; i < sum.size(); ++i) {
        const double eps = std::numeric_limits<float>::epsilon();
        ASSERT_NEAR(y32.data()[i], sum[i] / count[i], eps * (count[i] + 1) * size[i] / count[i]);
        const float m = 0.1F / 0.07F / static_cast<float>(count[i]);
        const volatile float v = static_cast<float>(sum8[i]) * m;
        ASSERT_EQ(y8.data()[i], saturate(std::nearbyint(double{v}) + 30)) << i;
      }
    }
  }
}

/// LiteRT's integer mean: sum over count in whole numbers, half of the count added away from 0.
int litert_mean(int sum, int count) {
  return sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
}

TEST_P(SmallOps, AvgPoolOfCodesRoundsAwayFromCodeZeroAsLiteRT) {
  const std::vector<int> sums = {1, 2, 3, 6, -1, -2, -6, 10}, means = {0, 1, 1, 2, 0, -1, -2, 3};
  std::vector<uint8_t> x(4 * sums.size(), 128), y(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) x[i] = static_cast<uint8_t>(128 + sums[i]);
  const PoolShape all{2, 2, 8, 2, 2, 2, 2};
  for (const int32_t zero_point : {0, 128, 131, 255}) {
    avg_pool_u8(all, true, 1, x.data(), y.data(), zero_point, GetParam(), kSerial);
    for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(y[i] - 128, means[i]) << sums[i] << ' ' << zero_point;
  }
  std::vector<PoolCase> cases = pool_cases();
  cases.push_back({{64, 64, 3, 64, 64, 64, 64}, 2});
  cases.push_back({{1, 1000, 2, 1, 6, 1, 6}, 1});
  for (const PoolCase& p : cases) {
    const PoolShape& s = p.shape;
    if (s.dilation_h != 1) continue;
    for (const bool include_pad : {false, true}) {
      for (const auto& [low, high] : {std::pair{0, 255}, {126, 131}, {0, 2}, {253, 255}}) {
        const int64_t in = p.batch * s.in_h * s.in_w * s.channels,
                      out = p.batch * s.out_h() * s.out_w() * s.channels;
        const auto codes = test::random_ints<uint8_t>(in, 3, low, high);
        const int zero_point = low + 1;
        std::vector<int> sum(static_cast<size_t>(out)), count = sum;
        each_window(s, p.batch, [&](int64_t o, int64_t i) {
          if (i < 0 && !include_pad) return;
          sum[static_cast<size_t>(o)] += (i < 0 ? zero_point : codes[static_cast<size_t>(i)]) - 128;
          ++count[static_cast<size_t>(o)];
        });
        test::Guarded<uint8_t> made(out);
        avg_pool_u8(s, include_pad, p.batch, codes.data(), made.data(), zero_point, GetParam(),
                    test::ThreadParallel(2));
        EXPECT_TRUE(made.intact());
        for (size_t i = 0; i < sum.size(); ++i)
          ASSERT_EQ(made.data()[i] - 128, litert_mean(sum[i], count[i])) << sum[i] << " of " << count[i];
      }
    }
  }
}

TEST_P(SmallOps, GlobalAverageOfBytesAndBf16) {
  const std::vector<uint8_t> x = {10, 20, 30, 50, 20, 31};  // 3 pixels, 2 channels
  std::vector<uint8_t> y(2);
  global_avg_pool(DataType::u8, 1, 3, 2, x.data(), y.data(), {1, 0}, {0.5F, 4}, GetParam(), kSerial);
  EXPECT_EQ(y, (std::vector<uint8_t>{44, 71}));              // 20 / 0.5 + 4, 33.67 / 0.5 + 4
  const std::vector<uint16_t> h = {0x3f80, 0x4000, 0x4040};  // 1 2 3
  uint16_t mean = 0;
  global_avg_pool(DataType::bf16, 1, 3, 1, h.data(), &mean, {}, {}, GetParam(), kSerial);
  EXPECT_EQ(mean, 0x4000);
}

TEST(Pool, BadShapesAreRefused) {
  EXPECT_THROW(check_pool({4, 4, 1, 2, 2, 2, 2, 2, 0}), Error);
  EXPECT_THROW(check_pool({4, 4, 0, 2, 2}), Error);
  EXPECT_THROW(check_pool({4, 4, 1, 5, 5}), Error);
  EXPECT_THROW(check_pool({4, 4, 1, 2, 2, 0, 1}), Error);
}

template <typename T>
void check_layout(Isa isa) {
  for (auto [batch, channels, pixels] : {std::tuple{1, 3, 49},
                                         {2, 3, 4099},
                                         {1, 5, 4099},
                                         {2, 64, 50},
                                         {3, 1, 784},
                                         {2, 70, 33},
                                         {1, 5, 1},
                                         {2, 33, 600},
                                         {1, 300, 40}}) {
    const int64_t n = int64_t{batch} * channels * pixels;
    const auto x = test::random_ints<T>(n, 1, 0, 255);
    test::Guarded<T> y(n), back(n);
    const int64_t size = static_cast<int64_t>(sizeof(T));
    nchw_to_nhwc(size, x.data(), y.data(), batch, channels, pixels, isa, test::ThreadParallel(2));
    nhwc_to_nchw(size, y.data(), back.data(), batch, channels, pixels, kSerial);
    EXPECT_TRUE(y.intact() && back.intact());
    EXPECT_EQ(back.values(), x);
    for (int b = 0; b < batch; ++b)
      for (int c = 0; c < channels; ++c)
        for (int p = 0; p < pixels; ++p)
          ASSERT_EQ(y.data()[(b * pixels + p) * channels + c],
                    x[static_cast<size_t>((b * channels + c) * pixels + p)]);
  }
}

TEST(Layout, ChannelsMoveLastAndBack) {
  for (const Isa isa : available_isas()) {
    check_layout<uint8_t>(isa);
    check_layout<uint16_t>(isa);
    check_layout<uint32_t>(isa);
  }
  uint64_t x = 0, y = 0;
  EXPECT_THROW(nchw_to_nhwc(8, &x, &y, 1, 2, 2, Isa::portable, kSerial), Error);
}

TEST(Layout, ConcatenatesChannels) {
  const std::vector<uint16_t> a = {1, 2, 3, 4}, b = {5, 6};
  std::vector<uint16_t> y(6);
  copy_channels(2, a.data(), y.data(), 2, 2, 3, 0, kSerial);
  copy_channels(2, b.data(), y.data(), 2, 1, 3, 2, kSerial);
  EXPECT_EQ(y, (std::vector<uint16_t>{1, 2, 5, 3, 4, 6}));
}

TEST(Layout, CutsChannels) {
  const std::vector<uint8_t> x = {1, 2, 3, 4, 5, 6, 7, 8};
  test::Guarded<uint8_t> y(4);
  slice_channels(1, x.data(), y.data(), 2, 2, 4, 1, kSerial);
  EXPECT_EQ(y.values(), (std::vector<uint8_t>{2, 3, 6, 7}));
  EXPECT_TRUE(y.intact());
}

template <typename T>
void check_shuffle() {
  for (auto [rows, channels, groups] :
       {std::tuple{1, 6, 2}, {3, 6, 3}, {700, 116, 2}, {5, 4, 1}, {2, 5, 5}}) {
    const auto x = test::random_ints<T>(int64_t{rows} * channels, 1, 0, 255);
    test::Guarded<T> y(rows * channels);
    shuffle_channels(sizeof(T), x.data(), y.data(), rows, channels, groups, test::ThreadParallel(2));
    EXPECT_TRUE(y.intact());
    const int count = channels / groups;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < channels; ++c)
        ASSERT_EQ(y.data()[r * channels + c % count * groups + c / count],
                  x[static_cast<size_t>(r * channels + c)]);
  }
}

TEST(Layout, ShufflesChannels) {
  check_shuffle<uint8_t>();
  check_shuffle<uint16_t>();
  check_shuffle<uint32_t>();
  uint64_t x = 0, y = 0;
  EXPECT_THROW(shuffle_channels(8, &x, &y, 1, 1, 1, kSerial), Error);
}

TEST(Layout, RequantizedChannelsAreRequantizedRows) {
  constexpr int64_t kRows = 400;
  for (const Isa isa : available_isas()) {
    for (const int64_t channels : {1, 5, 16, 67}) {
      const int64_t total = channels + 9, offset = 4;
      const auto x = test::random_ints<uint8_t>(kRows * channels, 3, 0, 255);
      const Affine xq{0.02F, 30}, yq{0.05F, 110};
      std::vector<uint8_t> dense(x.size());
      requantize(x.data(), dense.data(), kRows * channels, xq, yq, Isa::portable, kSerial);
      test::Guarded<uint8_t> y(kRows * total);
      std::fill_n(y.data(), kRows * total, uint8_t{7});
      requantize_channels(x.data(), y.data(), kRows, channels, total, offset, xq, yq, isa,
                          test::ThreadParallel(2));
      EXPECT_TRUE(y.intact()) << to_string(isa);
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = 0; c < total; ++c) {
          const bool inside = c >= offset && c < offset + channels;
          ASSERT_EQ(y.data()[r * total + c],
                    inside ? dense[static_cast<size_t>(r * channels + c - offset)] : uint8_t{7})
              << to_string(isa) << ", " << test::repeat_command();
        }
    }
  }
}

}  // namespace
}  // namespace ulp::kernels
