// Products of fp8 matrices: at::_scaled_mm gives what the numbers of the codes give, and is taken where it is faster.
#include "ulp/amp/fp8/fp8_product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "fp8_support.h"
#include "ulp/amp/fp8/fp8_layers.h"

namespace ulp::amp {
namespace {

Fp8Tensor codes_of(const at::Tensor& x, const char* format, double scale) {
  const formats::Format& found = formats::find(format);
  const auto type = found.mantissa_bits == 3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  return {.format = &found,
          .codes = (x * scale).to(type).view(at::kByte),
          .scale_inv = at::scalar_tensor(1 / scale, at::kFloat)};
}

TEST(Fp8Product, ScaledMmGivesWhatTheNumbersOfTheCodesGive) {
  torch::manual_seed(1);
  const Fp8Tensor a = codes_of(torch::randn({24, 64}), "fp8_e4m3fn", 16);
  for (const char* format : {"fp8_e4m3fn", "fp8_e5m2"}) {
    const Fp8Tensor b = codes_of(torch::randn({48, 64}), format, 4);
    if (!takes_scaled_mm(a, b)) GTEST_SKIP() << "this LibTorch has no fp8 products on processors";
    const at::Tensor expected = emulated_product(a, b);
    EXPECT_LE((scaled_mm(a, b, false) - expected).abs().max().item<double>(),
              1e-5 * expected.abs().max().item<double>())
        << format;
  }
}

/// Scales of rows are powers of two: they change no rounding of the sums.
TEST(Fp8Product, ScaledMmTakesAScaleARow) {
  torch::manual_seed(2);
  const auto with_rows = [](Fp8Tensor x) {
    x.scale_inv = torch::exp2(torch::arange(x.codes.size(0)).remainder(9).to(at::kFloat) - 4).unsqueeze(1);
    x.block = {1, x.codes.size(1)};
    return x;
  };
  const Fp8Tensor a = codes_of(torch::randn({24, 64}), "fp8_e4m3fn", 16),
                  b = codes_of(torch::randn({48, 64}), "fp8_e4m3fn", 4);
  for (const auto& [left, right] :
       {std::pair(with_rows(a), with_rows(b)), std::pair(with_rows(a), b), std::pair(a, with_rows(b))}) {
    if (!takes_scaled_mm(left, right)) GTEST_SKIP() << "this LibTorch has no fp8 products on processors";
    const at::Tensor expected = emulated_product(left, right);
    const at::Tensor terms = at::mm(left.dequantized().abs(), right.dequantized().abs().t());
    // 64 products and sums of each element, in any order.
    EXPECT_TRUE(
        ((scaled_mm(left, right, false) - expected).abs() <= terms * (64 * 0x1p-23)).all().item<bool>());
  }
}

/// Drawn numbers of rows and blocks, the last of which are cut; scales are powers of two, one is NaN.
TEST(Fp8Product, ScaledMmTakesAScaleABlock) {
  torch::manual_seed(3);
  const auto with_blocks = [](Fp8Tensor x, int64_t rows, int64_t columns) {
    const auto parts = [](int64_t size, int64_t block) { return (size + block - 1) / block; };
    x.scale_inv =
        torch::exp2(torch::randint(-6, 7, {parts(x.codes.size(0), rows), parts(x.codes.size(1), columns)}));
    x.block = {rows, columns};
    return x;
  };
  struct Drawn {
    int64_t m, n, k, rows_a, columns_a, rows_b, columns_b;
  };
  for (const Drawn& d : {Drawn{24, 48, 64, 1, 32, 1, 32}, Drawn{5, 16, 160, 1, 128, 128, 128},
                         Drawn{130, 144, 272, 1, 128, 128, 128}, Drawn{33, 32, 96, 1, 32, 16, 16},
                         Drawn{1, 16, 48, 1, 16, 1, 48}, Drawn{7, 160, 128, 4, 64, 128, 128}}) {
    SCOPED_TRACE(d.k);
    Fp8Tensor a = with_blocks(codes_of(torch::randn({d.m, d.k}), "fp8_e4m3fn", 16), d.rows_a, d.columns_a),
              b = with_blocks(codes_of(torch::randn({d.n, d.k}), "fp8_e5m2", 4), d.rows_b, d.columns_b);
    if (!takes_scaled_mm(a, b)) GTEST_SKIP() << "this LibTorch has no fp8 products on processors";
    const at::Tensor terms = at::mm(a.dequantized().abs(), b.dequantized().abs().t());
    // k products and sums of each element, in any order.
    EXPECT_TRUE(((scaled_mm(a, b, false) - emulated_product(a, b)).abs() <=
                 terms * (static_cast<double>(d.k) * 0x1p-23))
                    .all()
                    .item<bool>());
    a.scale_inv[0][0] = NAN;
    EXPECT_TRUE(torch::equal(scaled_mm(a, b, false).isnan(), emulated_product(a, b).isnan()));
  }
  const Fp8Tensor a = codes_of(torch::randn({24, 192}), "fp8_e4m3fn", 16),
                  b = codes_of(torch::randn({48, 192}), "fp8_e4m3fn", 4);
  EXPECT_FALSE(takes_scaled_mm(with_blocks(a, 1, 8), b)) << "blocks of 8 columns";
  EXPECT_FALSE(takes_scaled_mm(with_blocks(a, 1, 64), with_blocks(b, 1, 96))) << "blocks that end apart";
  Fp8Tensor wrong = a;
  wrong.block = {1, 128};
  wrong.scale_inv = torch::ones({24, 3});
  EXPECT_FALSE(takes_scaled_mm(wrong, b)) << "three scales of two blocks";
}

TEST(Fp8Product, ScaledMmIsLeftOutWhereItTakesNoSuchMatrices) {
  const Fp8Tensor a = codes_of(torch::randn({24, 64}), "fp8_e5m2", 1);
  EXPECT_FALSE(takes_scaled_mm(a, codes_of(torch::randn({48, 64}), "fp8_e5m2", 1))) << "both of 2 bits";
  EXPECT_FALSE(takes_scaled_mm(a, codes_of(torch::randn({40, 64}), "fp8_e4m3fn", 1))) << "40 outputs";
}

TEST(Fp8Product, EachSizeIsMeasuredOnceAndTheFasterWayIsTaken) {
  const Fp8Tensor small = codes_of(torch::randn({16, 16}), "fp8_e4m3fn", 1);
  const Fp8Tensor large = codes_of(torch::randn({32, 16}), "fp8_e4m3fn", 1);
  Fp8ProductChooser chooser;
  int calls = 0;
  double native_seconds = 0, emulated_seconds = 0;
  bool is_native = false;
  const auto timer = [&](const std::function<void()>& call) {
    ++calls;
    call();
    return is_native ? native_seconds : emulated_seconds;
  };
  const auto choose = [&](const Fp8Tensor& a, const std::string& layer, double native, double emulated) {
    native_seconds = native;
    emulated_seconds = emulated;
    return chooser.native(
        a, small, {layer, Fp8ProductRole::forward}, [&] { is_native = true; }, [&] { is_native = false; },
        timer);
  };
  EXPECT_TRUE(choose(large, "first", 1, 2));
  const int measured = calls;
  EXPECT_GT(measured, 2) << "the first call of each is not counted";
  EXPECT_TRUE(choose(large, "first", 2, 1)) << "known";
  EXPECT_TRUE(choose(large, "second", 2, 1)) << "known from the first layer";
  EXPECT_EQ(calls, measured);
  EXPECT_FALSE(choose(small, "second", 2, 1));
  EXPECT_EQ(calls, 2 * measured);

  const std::vector<Fp8ProductChoice> choices = chooser.choices();
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0].layer, "first");
  EXPECT_EQ(choices[1].layer, "second");
  EXPECT_EQ(choices[1].rows, 32);
  EXPECT_TRUE(choices[1].native);
  EXPECT_EQ(choices[2].rows, 16);
  EXPECT_FALSE(choices[2].native);
  EXPECT_EQ(choices[2].native_seconds, 2);
}

TEST(Fp8Product, NothingIsMeasuredOnProcessors) {
  const auto layer = std::make_shared<Fp8LinearImpl>(16, 16, ulp::test::with(Fp8Scaling::current));
  layer->forward(torch::randn({16, 16}));
  EXPECT_TRUE(fp8_product_choices().empty());
}

}  // namespace
}  // namespace ulp::amp
