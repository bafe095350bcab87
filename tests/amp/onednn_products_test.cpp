// Products by oneDNN in the place of LibTorch's: right within the rounding of their sums, for layers and their gradients,
// and gone with the last object.
#include "ulp/amp/products/onednn_products.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "ulp/kernels/isa/isa.h"

namespace ulp::amp {
namespace {

class OneDnnProductsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasMKLDNN()) GTEST_SKIP() << "this LibTorch has no oneDNN";
  }
};

/// oneDNN is switched off as users do it.
class WithoutMkldnn {
 public:
  WithoutMkldnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutMkldnn() { at::globalContext().setUserEnabledMkldnn(before_); }
  WithoutMkldnn(const WithoutMkldnn&) = delete;
  WithoutMkldnn& operator=(const WithoutMkldnn&) = delete;

 private:
  bool before_ = at::globalContext().userEnabledMkldnn();
};

struct ProductCase {
  int64_t m, k, n;
};

/// |computed - exact| <= (k + 2) eps sum |a||b|, twice over for sums in any order.
void expect_product(const at::Tensor& got, const at::Tensor& a, const at::Tensor& b,
                    const std::optional<at::Tensor>& bias = std::nullopt) {
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  at::Tensor size = at::mm(a.abs().to(at::kDouble), b.abs().to(at::kDouble));
  const at::Tensor with_bias = bias ? exact + bias->to(at::kDouble) : exact;
  if (bias) size = size + bias->abs().to(at::kDouble);
  const double eps = std::numeric_limits<float>::epsilon() * static_cast<double>(a.size(1) + 2);
  ASSERT_EQ(got.sizes(), with_bias.sizes());
  EXPECT_TRUE(((got.to(at::kDouble) - with_bias).abs() <= size * eps).all().item<bool>());
}

/// The same numbers, by rows, by columns, as a part of a larger matrix, and every second row.
std::vector<at::Tensor> layouts_of(const at::Tensor& x) {
  const at::Tensor wide = at::zeros({x.size(0) + 3, x.size(1) + 5});
  const at::Tensor part = wide.narrow(0, 1, x.size(0)).narrow(1, 2, x.size(1));
  part.copy_(x);
  const at::Tensor rows = at::zeros({2 * x.size(0), x.size(1)});
  const at::Tensor second = rows.slice(0, 0, 2 * x.size(0), 2);
  second.copy_(x);
  return {x, x.t().contiguous().t(), part, second};
}

TEST_F(OneDnnProductsTest, AreRightInEveryLayout) {
  torch::manual_seed(1);
  const OneDnnProducts products;
  for (const auto& [m, k, n] : {ProductCase{256, 128, 128},
                                {4, 1024, 1024},
                                {2100, 3, 2000},
                                {512, 2, 512},
                                {130, 257, 131},
                                {2048, 2048, 1}}) {
    const at::Tensor a = at::randn({m, k}), b = at::randn({k, n}), bias = at::randn({n});
    const std::vector<at::Tensor> lefts = layouts_of(a), rights = layouts_of(b);
    for (size_t i = 0; i < lefts.size(); ++i) {
      for (const size_t j : {i, (i + 1) % rights.size()}) {
        const int64_t before = OneDnnProducts::count();
        expect_product(at::mm(lefts[i], rights[j]), a, b);
        expect_product(at::addmm(bias, lefts[i], rights[j]), a, b, bias);
        EXPECT_EQ(OneDnnProducts::count(), before + 2);
      }
    }
  }
}

TEST_F(OneDnnProductsTest, TakeRepeatedRowsAndColumns) {
  torch::manual_seed(2);
  const OneDnnProducts products;
  const at::Tensor row = at::randn({1, 256}), column = at::randn({256, 1}), b = at::randn({256, 128});
  const at::Tensor repeated = row.expand({256, 256}), across = column.expand({256, 256});
  expect_product(at::mm(repeated, b), repeated.contiguous(), b);
  expect_product(at::mm(across, b), across.contiguous(), b);
  expect_product(at::mm(b.t(), repeated), b.t(), repeated.contiguous());
  expect_product(at::mm(b.t(), across), b.t(), across.contiguous());
  expect_product(at::addmm(at::ones({1}).expand({128}), repeated, b), repeated.contiguous(), b,
                 at::ones({128}));
}

TEST_F(OneDnnProductsTest, LayersTrainWithThem) {
  torch::manual_seed(3);
  torch::nn::Linear layer(160, 192);
  const at::Tensor x = at::randn({4, 96, 160}).requires_grad_(), dy = at::randn({4, 96, 192});
  const auto gradients = [&] {
    const at::Tensor y = layer->forward(x);
    auto all = torch::autograd::grad({y}, {x, layer->weight, layer->bias}, {dy});
    all.push_back(y);
    return all;
  };
  const auto own = gradients();
  std::vector<at::Tensor> got;
  {
    const OneDnnProducts products;
    const int64_t before = OneDnnProducts::count();
    got = gradients();
    EXPECT_EQ(OneDnnProducts::count(), before + 3) << "forward, and backward by x and by the weight";
  }
  const at::Tensor rows = x.detach().reshape({-1, 160}), drows = dy.reshape({-1, 192});
  const at::Tensor weight = layer->weight.detach();
  expect_product(got[3].detach().reshape({-1, 192}), rows, weight.t(), layer->bias.detach());
  expect_product(got[0].reshape({-1, 160}), drows, weight);
  expect_product(got[1], drows.t(), rows);
  const int64_t after = OneDnnProducts::count();
  const auto again = gradients();
  EXPECT_EQ(OneDnnProducts::count(), after) << "LibTorch's kernels are back";
  for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(again[i].equal(own[i])) << i;
}

TEST_F(OneDnnProductsTest, LeaveAllElseToLibTorch) {
  torch::manual_seed(4);
  const at::Tensor a = at::randn({256, 256}), b = at::randn({256, 256}), bias = at::randn({256});
  const auto switched_off = [&] {
    const WithoutMkldnn guard;
    return at::addmm(bias, a, b);
  };
  const auto others = [&] {
    return std::vector<at::Tensor>{switched_off(),
                                   at::mm(a.narrow(0, 0, 8), b),
                                   at::mm(at::ones({2100, 1}), at::ones({1, 2000})),
                                   at::mm(a.to(at::kDouble), b.to(at::kDouble)),
                                   at::mm(a.to(at::kBFloat16), b.to(at::kBFloat16)),
                                   at::addmm(bias, a, b, 0.5, 1),
                                   at::addmm(bias, a, b, 1, 2),
                                   at::addmm(bias.view({256, 1}), a, b),
                                   at::addmm(at::ones({1}), a, b),
                                   at::addmm(a, a, b),
                                   at::mm(a.narrow(1, 0, 0), b.narrow(0, 0, 0)),
                                   at::mm(a.to(at::kLong), b.to(at::kLong))};
  };
  const std::vector<at::Tensor> own = others();
  const OneDnnProducts products;
  const int64_t before = OneDnnProducts::count();
  const std::vector<at::Tensor> got = others();
  EXPECT_EQ(OneDnnProducts::count(), before);
  for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(got[i].equal(own[i])) << i;
  EXPECT_THROW(at::mm(a, at::randn({255, 256})), c10::Error);
  EXPECT_THROW(at::mm(a, b.to(at::kDouble)), c10::Error);
  EXPECT_THROW(at::addmm(at::randn({3}), a, b), c10::Error);
}

TEST_F(OneDnnProductsTest, NestAndGiveTheSameBitsAgain) {
  torch::manual_seed(5);
  const at::Tensor a = at::randn({256, 256}), b = at::randn({256, 256});
  const at::Tensor own = at::mm(a, b);
  at::Tensor outer, inner;
  {
    const OneDnnProducts first;
    outer = at::mm(a, b);
    { const OneDnnProducts second; }
    const int64_t before = OneDnnProducts::count();
    inner = at::mm(a, b);
    EXPECT_EQ(OneDnnProducts::count(), before + 1) << "the outer object lives";
  }
  EXPECT_TRUE(outer.equal(inner));
  EXPECT_TRUE(at::mm(a, b).equal(own));
}

TEST_F(OneDnnProductsTest, SayNothingWhenTheyTakeTheirPlace) {
  testing::internal::CaptureStderr();
  { const OneDnnProducts products; }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(OneDnnProductsPay, OnlyWhereTheyCanBeMadeOnUnitsOf512Bits) {
  if (!onednn_products_pay()) GTEST_SKIP() << "not on this machine";
  EXPECT_TRUE(kernels::is_amd_family_1a());
  const std::vector<kernels::Isa> isas = kernels::available_isas();
  EXPECT_NE(std::ranges::find(isas, kernels::Isa::avx512), isas.end());
  EXPECT_TRUE(at::hasMKL() && at::hasMKLDNN());
  EXPECT_NO_THROW(OneDnnProducts());
}

/// What prepare_training_products() changes stays to the end of the process, so it has one of its own.
TEST(OneDnnProductsDeathTest, ProgramsThatTrainHaveThemWhereTheyPay) {
#ifdef ULP_EMULATED
  GTEST_SKIP() << "under an emulator a program cannot start itself again";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const at::Tensor a = at::randn({256, 256});
        for (int call = 0; call < 2; ++call) prepare_training_products();
        for (int product = 0; product < 3; ++product) at::mm(a, a);
        std::exit(OneDnnProducts::count() == (onednn_products_pay() ? 3 : 0) ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace ulp::amp
