#include "ulp/quant/operators/binary_ops.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "error_of.h"
#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

using ulp::test::error_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Binarize, ZerosArePositiveAndNaNNegative) {
  const at::Tensor x = torch::tensor({-kInf, -2.0F, -1e-45F, -0.0F, 0.0F, 1e-45F, 3.0F, kInf, kNaN});
  const at::Tensor expected = torch::tensor({-1.0F, -1.0F, -1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F, -1.0F});
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor given = dtype == at::kBFloat16 ? torch::where(x.abs() < 1e-30, x * 1e10, x) : x;
    const at::Tensor signs = binarize(given.to(dtype));
    EXPECT_EQ(signs.scalar_type(), dtype);
    EXPECT_TRUE(signs.to(at::kFloat).equal(expected)) << signs;
  }
  EXPECT_THROW(binarize(torch::tensor({1, 2})), Error);
}

TEST(Binarize, KeepsTheMemoryFormatAndHasAShapeOnMeta) {
  const at::Tensor x = torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(binarize(x).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(binarize(x.to(at::kMeta)).sizes(), x.sizes());
}

TEST(Binarize, GradientsAreThoseOfTheEstimators) {
  const std::vector<float> points = {-kInf, -1.5F, -1.0F, -0.25F, -0.0F, 0.5F, 1.0F, 1.0001F, kNaN};
  const auto expect = [&](SignGradient kind, const std::vector<float>& factors) {
    at::Tensor x = torch::tensor(points).requires_grad_();
    const at::Tensor weight = torch::arange(1, static_cast<int64_t>(points.size()) + 1).to(at::kFloat);
    (binarize(x, kind) * weight).sum().backward();
    EXPECT_TRUE(x.grad().equal(weight * torch::tensor(factors))) << enum_name(kind) << ' ' << x.grad();
  };
  expect(SignGradient::clipped, {0, 0, 1, 1, 1, 1, 1, 0, 0});
  expect(SignGradient::approx, {0, 0, 0, 1.5F, 2, 1, 0, 0, 0});
  expect(SignGradient::identity, {1, 1, 1, 1, 1, 1, 1, 1, 1});
}

TEST(Binarize, AnInfiniteGradientStaysOutside) {
  for (const auto kind : {SignGradient::clipped, SignGradient::approx}) {
    at::Tensor x = torch::tensor({-2.0F, 2.0F}).requires_grad_();
    binarize(x, kind).backward(torch::tensor({kInf, kNaN}));
    EXPECT_TRUE(x.grad().equal(torch::zeros({2}))) << x.grad();
  }
}

TEST(Ternarize, ThresholdAndScaleAreThoseOfThePaper) {
  // mean |w| = 1, threshold 0.7: 1.5 and 1.6 stay, and 0.7 itself does not.
  at::Tensor w = torch::tensor({{1.5F, -1.6F, 0.7F, -0.2F}, {0.0F, 0.0F, 0.0F, 0.0F}}).requires_grad_();
  const at::Tensor t = ternarize(w);
  const float scale = (1.5F + 1.6F) / 2;
  EXPECT_TRUE(at::allclose(t, torch::tensor({{scale, -scale, 0.0F, 0.0F}, {0.0F, 0.0F, 0.0F, 0.0F}}))) << t;
  t.sum().backward();
  EXPECT_TRUE(w.grad().equal(torch::ones({2, 4})));
  EXPECT_THROW(ternarize(torch::zeros({3})), Error);
}

TEST(PackSigns, BitsAreNegativeSignsWithTheChannelsInnermost) {
  at::Tensor w = torch::ones({2, 10, 1, 2});
  w[0][1][0][0] = -0.5;
  w[0][9][0][0] = -3;
  w[1][7][0][1] = -1;
  w[1][0][0][1] = -0.0;
  const at::Tensor bits = pack_signs(w);
  const at::Tensor expected = torch::zeros({2, 1, 2, 2}, at::kByte);
  expected[0][0][0][0] = 2;
  expected[0][0][0][1] = 2;
  expected[1][0][1][0] = 128;
  EXPECT_TRUE(bits.equal(expected)) << bits;
}

TEST(PackSigns, UnpackingGivesTheSignsBack) {
  torch::manual_seed(1);
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{3, 1}, {5, 8}, {4, 17}, {2, 9, 3}, {3, 16, 3, 3}, {2, 20, 1, 5}}) {
    const at::Tensor w = torch::randn(sizes);
    const at::Tensor bits = pack_signs(w);
    EXPECT_EQ(bits.scalar_type(), at::kByte);
    EXPECT_TRUE(unpack_signs(bits, sizes).equal(binarize(w))) << at::IntArrayRef(sizes);
  }
  EXPECT_NE(error_of([] {
              unpack_signs(torch::zeros({2, 1}, at::kByte), {2, 9});
            }).find("[2, 2]"),
            std::string::npos);
  EXPECT_THROW(unpack_signs(torch::zeros({2, 2}), {2, 9}), Error);
}

}  // namespace
}  // namespace ulp::quant
