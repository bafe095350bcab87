// int8 linear layers: results and gradients against the definition in float64, written with LibTorch's
// operators.
#include "ulp/amp/int8/int8_linear.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/int8/int8_layers.h"
#include "ulp/amp/int8/int8_tensor.h"
#include "ulp/base/error.h"

namespace ulp::amp {
namespace {

using at::Tensor;

constexpr Int8Method kMethods[] = {Int8Method::switchback, Int8Method::rowwise, Int8Method::jetfire};

/// The numbers that codes stand for, with a scale for each index of the dimensions that are not in `shared`;
/// in float64.
Tensor rounded_with(const Tensor& x, const Tensor& most) {
  const Tensor scale = at::where(most == 0, at::ones_like(most), most / 127.0F);
  return at::round(x * scale.reciprocal()).to(at::kDouble) * scale.to(at::kDouble);
}
Tensor rounded_along(const Tensor& x, at::IntArrayRef shared) {
  return rounded_with(x, x.abs().amax(shared, true));
}
Tensor rounded_in_blocks(const Tensor& x) {
  const auto up = [](int64_t n) { return (n + 31) / 32 * 32; };
  const int64_t rows = x.size(0), columns = x.size(1);
  const Tensor whole = at::constant_pad_nd(x, {0, up(columns) - columns, 0, up(rows) - rows});
  const Tensor blocks = whole.view({whole.size(0) / 32, 32, whole.size(1) / 32, 32});
  return rounded_along(blocks, {1, 3}).view(whole.sizes()).narrow(0, 0, rows).narrow(1, 0, columns);
}

struct Expected {
  Tensor y, dx, dw, db;
};

/// The table of int8_linear.h, for a float32 layer.
Expected plain_layer(const Int8LayerRecipe& recipe, const Tensor& x, const Tensor& w, const Tensor& b,
                     const Tensor& g) {
  const bool blocks = recipe.method == Int8Method::jetfire, whole = recipe.method == Int8Method::switchback;
  // Along which dimension scales are shared: 1 for rows.
  const auto operand = [&](const Tensor& t, int64_t shared, bool in_int8, bool weight) {
    if (!in_int8) return t.to(at::kDouble);
    if (blocks) return rounded_in_blocks(t);
    return whole && weight ? rounded_along(t, {0, 1}) : rounded_along(t, {shared});
  };
  const bool int8_dw = recipe.grad_weight && !whole;
  return {
      at::linear(operand(x, 1, recipe.output, false), operand(w, 1, recipe.output, true), b.to(at::kDouble)),
      operand(g, 1, recipe.grad_input, false).mm(operand(w, 0, recipe.grad_input, true)),
      operand(g, 0, int8_dw, false).t().mm(operand(x, 0, int8_dw, false)), g.to(at::kDouble).sum(0)};
}

/// A layer's data, with rows and columns of different sizes.
struct LayerData {
  Tensor x, w, b, g;
  LayerData(int64_t rows, int64_t in, int64_t out) {
    torch::manual_seed(5);
    x = torch::randn({rows, in}) * torch::rand({rows, 1}) * torch::rand({1, in});
    w = torch::randn({out, in}) * 0.1;
    b = torch::randn({out});
    g = torch::randn({rows, out}) * torch::rand({rows, 1}) * 1e-3;
    for (Tensor* t : {&x, &w, &b}) t->requires_grad_();
  }
};

void expect_near(const Tensor& got, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const double error = (got.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(error, tolerance * expected.abs().max().item<double>()) << what;
}

std::vector<Int8LayerRecipe> all_recipes() {
  std::vector<Int8LayerRecipe> recipes;
  for (const Int8Method method : kMethods) recipes.push_back({.method = method});
  for (int left_out = 1; left_out < 8; ++left_out) {
    recipes.push_back({.method = Int8Method::rowwise,
                       .output = (left_out & 1) == 0,
                       .grad_input = (left_out & 2) == 0,
                       .grad_weight = (left_out & 4) == 0});
  }
  return recipes;
}

std::string name_of(const Int8LayerRecipe& r) {
  return std::string(enum_name(r.method)) + (r.output ? " y" : "") + (r.grad_input ? " dx" : "") +
         (r.grad_weight ? " dW" : "");
}

TEST(Int8Linear, ResultsAndGradientsAreThoseOfTheDefinition) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{1, 3, 2}, {40, 70, 33}, {96, 64, 128}}) {
    for (const Int8LayerRecipe& recipe : all_recipes()) {
      const LayerData d(rows, in, out);
      const Tensor y = int8_linear(d.x, d.w, d.b, recipe);
      y.backward(d.g);
      const Expected expected = plain_layer(recipe, d.x.detach(), d.w.detach(), d.b.detach(), d.g);
      // Sums are exact; the scales and the order of roundings in fp32 are what is left.
      const std::string what = name_of(recipe) + ", " + std::to_string(rows) + " rows: ";
      expect_near(y.detach(), expected.y, 1e-6, what + "y");
      expect_near(d.x.grad(), expected.dx, 1e-6, what + "dx");
      expect_near(d.w.grad(), expected.dw, 1e-6, what + "dW");
      expect_near(d.b.grad(), expected.db, 1e-6, what + "db");
    }
  }
}

TEST(Int8Linear, GradientsAreTheSlopesOfTheLayerOverManySteps) {
  // Rounded results are steps; over a distance of many steps their differences are the slope, but for half a
  // step at each end.
  for (const Int8Method method : kMethods) {
    const LayerData d(64, 48, 32);
    int8_linear(d.x, d.w, d.b, {.method = method}).backward(d.g);
    const torch::NoGradGuard no_grad;
    const auto loss = [&](const Tensor& x, const Tensor& w) {
      return (int8_linear(x, w, d.b, {.method = method}) * d.g).sum().item<double>();
    };
    const Tensor to_x = d.g.mm(d.w).sign() * d.x.abs().mean(),
                 to_w = d.g.t().mm(d.x).sign() * d.w.abs().mean();
    const double along_x = loss(d.x + to_x, d.w) - loss(d.x - to_x, d.w);
    const double along_w = loss(d.x, d.w + to_w) - loss(d.x, d.w - to_w);
    EXPECT_NEAR((d.x.grad() * to_x * 2).sum().item<double>() / along_x, 1, 0.02) << enum_name(method);
    EXPECT_NEAR((d.w.grad() * to_w * 2).sum().item<double>() / along_w, 1, 0.02) << enum_name(method);
  }
}

TEST(Int8Linear, AWeightThatIsStoredTheOtherWayRoundGivesTheSame) {
  for (const Int8Method method : kMethods) {
    const LayerData d(40, 70, 33);
    int8_linear(d.x, d.w, d.b, {.method = method}).backward(d.g);
    const Tensor x = d.x.detach().clone().requires_grad_();
    const Tensor stored = d.w.detach().t().contiguous().requires_grad_();
    int8_linear(x, stored.t(), d.b.detach(), {.method = method}).backward(d.g);
    EXPECT_TRUE(at::equal(x.grad(), d.x.grad())) << enum_name(method);
    expect_near(stored.grad().t(), d.w.grad().to(at::kDouble), 1e-6, enum_name(method));
    EXPECT_TRUE(stored.grad().is_contiguous()) << enum_name(method);
  }
}

TEST(Int8Linear, UnderAutocastResultsAreBf16AndParametersKeepTheirType) {
  for (const Int8Method method : kMethods) {
    const LayerData d(40, 64, 32);
    const Tensor x = d.x.detach().view({4, 10, 64}).requires_grad_();
    Tensor y;
    {
      const Autocast bf16(at::kCPU, at::kBFloat16);
      y = int8_linear(x, d.w, d.b, {.method = method});
    }
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(y.sizes(), at::IntArrayRef({4, 10, 32}));
    const Tensor f32 = int8_linear(x, d.w, d.b, {.method = method});
    EXPECT_TRUE(at::equal(y, f32.to(at::kBFloat16))) << enum_name(method);
    y.backward(d.g.view({4, 10, 32}).to(at::kBFloat16));
    EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(d.w.grad().scalar_type(), at::kFloat);
    const Expected expected = plain_layer({.method = method}, d.x.detach(), d.w.detach(), d.b.detach(),
                                          d.g.to(at::kBFloat16).to(at::kFloat));
    expect_near(x.grad().view({40, 64}), expected.dx, 1e-6, "dx");
    expect_near(d.w.grad(), expected.dw, method == Int8Method::switchback ? 1e-2 : 1e-6, "dW");
  }
}

TEST(Int8Linear, AnInputThatIsNotFiniteReachesTheGradients) {
  const LayerData d(4, 8, 8);
  const Tensor x = d.x.detach().clone();
  x[1][2] = std::numeric_limits<float>::infinity();
  const Tensor y = int8_linear(x, d.w, d.b, {.method = Int8Method::rowwise});
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
  EXPECT_FALSE(y[0].isnan().any().item<bool>());
  y.sum().backward();
  EXPECT_TRUE(d.w.grad().isnan().any().item<bool>());
}

TEST(Int8Linear, RandomRoundingRepeatsWithItsSeedAndIsRightOnAverage) {
  const LayerData d(64, 32, 16);
  const Int8LayerRecipe recipe{.method = Int8Method::rowwise, .stochastic = true};
  const auto gradient = [&](uint64_t seed) {
    torch::manual_seed(seed);
    d.x.mutable_grad() = Tensor();
    int8_linear(d.x, d.w, d.b, recipe).backward(d.g);
    return d.x.grad().clone();
  };
  EXPECT_TRUE(at::equal(gradient(1), gradient(1)));
  EXPECT_FALSE(at::equal(gradient(1), gradient(2)));
  constexpr int kTimes = 64;
  Tensor mean = torch::zeros_like(d.x);
  for (uint64_t seed = 0; seed < kTimes; ++seed) mean += gradient(seed) / kTimes;
  // The weight's codes are rounded to nearest: what g is multiplied by.
  const Tensor exact = d.g.to(at::kDouble).mm(rounded_along(d.w.detach(), {0}));
  const double one = (gradient(1).to(at::kDouble) - exact).norm().item<double>();
  EXPECT_LT((mean.to(at::kDouble) - exact).norm().item<double>(), 2 * one / std::sqrt(kTimes));
}

/// LibTorch's products of bytes in its own loops, which are exact. On processors with VNNI it asks oneDNN
/// instead, whose sums of two products saturate at 16 bits where its instructions are limited to AVX2.
class WithoutOneDnn {
 public:
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(before_); }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;

 private:
  bool before_ = at::globalContext().userEnabledMkldnn();
};

TEST(Int8Linear, OtherDevicesWouldComputeTheSame) {
  const WithoutOneDnn exact;
  const LayerData d(70, 48, 40);
  using kernels::Int8Scales;
  for (const Int8Scales scales :
       {Int8Scales::rows, Int8Scales::columns, Int8Scales::tensor, Int8Scales::blocks}) {
    Tensor x = d.x.detach().clone();
    x[3].zero_();
    const Int8How how{.scales = scales, .across = true};
    const Int8Pair ours = int8_quantize(x, how), generic = int8_quantize_generic(x, how);
    EXPECT_TRUE(at::equal(ours.straight.codes, generic.straight.codes)) << static_cast<int>(scales);
    EXPECT_TRUE(at::equal(ours.across.codes, generic.across.codes)) << static_cast<int>(scales);
    EXPECT_TRUE(at::equal(ours.straight.scale, generic.straight.scale)) << static_cast<int>(scales);
    EXPECT_TRUE(at::equal(ours.across.scale, generic.across.scale)) << static_cast<int>(scales);
    if (scales == Int8Scales::columns) continue;
    const Int8Tensor w = int8_quantize(d.w.detach(), {.scales = scales}).straight;
    const Tensor b = d.b.detach();
    EXPECT_TRUE(at::equal(int8_product(ours.straight, w, b, at::kFloat),
                          int8_product_generic(ours.straight, w, b, at::kFloat)))
        << static_cast<int>(scales);
  }
}

TEST(Int8Linear, SumsOfAnyLengthAreAdded) {
  constexpr int64_t kInner = 150'000;
  torch::manual_seed(3);
  const Tensor a = torch::randn({2, kInner}), b = torch::randn({3, kInner});
  const Int8Tensor qa = int8_quantize(a, {}).straight, qb = int8_quantize(b, {}).straight;
  const Tensor expected = rounded_along(a, {1}).mm(rounded_along(b, {1}).t());
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    expect_near(int8_product(qa, qb, {}, dtype), expected, dtype == at::kFloat ? 1e-6 : 1e-2, "long sums");
}

TEST(Int8Linear, TheLayerIsALinearLayerInInt8) {
  Int8Linear layer(torch::nn::LinearOptions(24, 16).bias(false),
                   Int8LayerRecipe{.method = Int8Method::jetfire});
  const Tensor x = torch::randn({5, 24});
  EXPECT_TRUE(at::equal(layer(x), int8_linear(x, layer->weight, {}, layer->recipe())));
  layer(x).sum().backward();
  EXPECT_TRUE(layer->weight.grad().defined());
}

TEST(Int8Linear, NoSamplesHaveNoGradient) {
  for (const Int8Method method : {Int8Method::switchback, Int8Method::rowwise, Int8Method::jetfire}) {
    Int8Linear layer(torch::nn::LinearOptions(129, 40), Int8LayerRecipe{.method = method});
    const Tensor y = layer(torch::zeros({0, 129}));
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 40}));
    y.sum().backward();
    EXPECT_TRUE(at::equal(layer->weight.grad(), torch::zeros({40, 129})));
  }
}

TEST(Int8Linear, RefusesWhatItCannotCompute) {
  const LayerData d(4, 8, 6);
  EXPECT_THROW(int8_linear(d.x.to(at::kInt), d.w, d.b), Error);
  EXPECT_THROW(int8_linear(torch::randn({4, 7}), d.w, d.b), Error);
  EXPECT_THROW(int8_linear(d.x, d.w, torch::randn({5})), Error);
  EXPECT_THROW(int8_linear(d.x, d.w, d.b, {.method = Int8Method::jetfire, .output = false}), Error);
  EXPECT_THROW(Int8LayerRecipe({.grad_weight = false}).validate(), Error);
  const Tensor y = int8_linear(d.x, d.w, d.b).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {d.x}, {}, true, true), Error);
}

}  // namespace
}  // namespace ulp::amp
