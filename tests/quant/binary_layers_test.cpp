#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/binary/binary_weights.h"
#include "ulp/quant/binary/layers.h"

namespace ulp::quant {
namespace {

using torch::nn::Conv2dOptions;
using ulp::test::error_of;

constexpr BinaryScale kScales[] = {BinaryScale::none, BinaryScale::mean,    BinaryScale::output,
                                   BinaryScale::full, BinaryScale::spatial, BinaryScale::separable};

at::Tensor over_pixels(const at::Tensor& v) {
  return v.view({-1, 1, 1});
}

TEST(BinaryConv2d, IsAConvolutionOfSignsTimesTheMeanWeight) {
  torch::manual_seed(1);
  for (const auto padding : {BinaryPadding::one, BinaryPadding::zero}) {
    BinaryConv2d conv(Conv2dOptions(5, 7, 3).stride(2).padding(1), BinaryLayerOptions{.padding = padding});
    const at::Tensor x = torch::randn({2, 5, 8, 9});
    const auto sign = [](const at::Tensor& v) { return v.ge(0).to(at::kFloat) * 2 - 1; };
    const at::Tensor padded =
        at::constant_pad_nd(sign(x), {1, 1, 1, 1}, padding == BinaryPadding::one ? 1 : 0);
    const at::Tensor sums = at::conv2d(padded, sign(conv->weight), {}, 2);
    const at::Tensor expected =
        sums * over_pixels(conv->weight.abs().mean({1, 2, 3})) + over_pixels(conv->bias);
    EXPECT_TRUE(at::allclose(conv(x), expected, 1e-6, 1e-6));
  }
}

TEST(BinaryConv2d, TheActivationScaleIsABoxFilterOfTheMeanSize) {
  torch::manual_seed(2);
  const BinaryLayerOptions plain, scaled{.activation_scale = true};
  BinaryConv2d without(Conv2dOptions(3, 4, 3).padding(1).bias(false), plain);
  BinaryConv2d with(Conv2dOptions(3, 4, 3).padding(1).bias(false), scaled);
  {
    const at::NoGradGuard no_grad;
    with->weight.copy_(without->weight);
  }
  const at::Tensor x = torch::randn({2, 3, 6, 6});
  const at::Tensor box = at::conv2d(x.abs().mean(1, true), torch::full({1, 1, 3, 3}, 1.0 / 9), {}, 1, 1);
  EXPECT_TRUE(at::allclose(with(x), without(x) * box, 1e-5, 1e-6));
}

TEST(BinaryConv2d, EveryScaleHasItsShapesAndLearns) {
  for (const BinaryScale scale : kScales) {
    torch::manual_seed(3);
    BinaryConv2d conv(Conv2dOptions(4, 6, 3).padding(1), BinaryLayerOptions{.scale = scale},
                      std::vector<int64_t>{5, 7});
    const at::Tensor x = torch::randn({2, 4, 5, 7}).requires_grad_();
    conv(x).square().sum().backward();
    EXPECT_EQ(conv(x).sizes(), (std::vector<int64_t>{2, 6, 5, 7}));
    for (const auto& parameter : conv->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << enum_name(scale) << ' ' << parameter.key();
      EXPECT_GT(parameter.value().grad().abs().sum().item<float>(), 0)
          << enum_name(scale) << ' ' << parameter.key();
    }
    int64_t numbers = 0;
    for (const auto& parameter : conv->named_parameters()) {
      if (parameter.key().starts_with("scale")) numbers += parameter.value().numel();
    }
    const int64_t expected = scale == BinaryScale::output      ? 6
                             : scale == BinaryScale::full      ? 6 * 35
                             : scale == BinaryScale::spatial   ? 6 + 35
                             : scale == BinaryScale::separable ? 6 + 5 + 7
                                                               : 0;
    EXPECT_EQ(numbers, expected) << enum_name(scale);
    // Learned ones start where the mean one stands.
    if (is_learned(scale)) {
      BinaryConv2d mean(Conv2dOptions(4, 6, 3).padding(1));
      const at::NoGradGuard no_grad;
      mean->weight.copy_(conv->weight);
      mean->bias.copy_(conv->bias);
      EXPECT_TRUE(at::allclose(conv(x), mean(x), 1e-6, 1e-6)) << enum_name(scale);
    }
  }
}

TEST(BinaryConv2d, SignsAsInputKeepTheGradientOfWhoMadeThem) {
  torch::manual_seed(4);
  const BinaryLayerOptions options{.gradient = SignGradient::approx};
  BinaryConv2d inside(Conv2dOptions(3, 4, 1).bias(false), options);
  BinaryConv2d outside(Conv2dOptions(3, 4, 1).bias(false), options, std::vector<int64_t>{}, /*signs=*/true);
  {
    const at::NoGradGuard no_grad;
    outside->weight.copy_(inside->weight);
  }
  at::Tensor a = torch::randn({2, 3, 4, 4}).requires_grad_(), b = a.detach().clone().requires_grad_();
  const at::Tensor y = inside(a), z = outside(Sign(SignGradient::approx)(b));
  EXPECT_TRUE(y.equal(z));
  y.square().sum().backward();
  z.square().sum().backward();
  EXPECT_TRUE(a.grad().equal(b.grad()));
  EXPECT_GT(a.grad().abs().sum().item<float>(), 0);
}

TEST(BinaryConv2d, RefusesWhatItCannotDo) {
  EXPECT_NE(error_of([] {
              BinaryConv2d(Conv2dOptions(3, 4, 3), BinaryLayerOptions{.scale = BinaryScale::full});
            }).find("[h, w]"),
            std::string::npos);
  EXPECT_THROW(BinaryConv2d(Conv2dOptions(3, 4, 3).padding(torch::kSame)), Error);
  for (const Conv2dOptions& window : {Conv2dOptions(3, 4, 3).dilation(2), Conv2dOptions(3, 4, 3).padding(2)})
    EXPECT_THROW(BinaryConv2d(window, BinaryLayerOptions{.activation_scale = true}), Error);
}

TEST(BinaryLinear, IsAProductOfSignsOverTheLastDimension) {
  torch::manual_seed(5);
  BinaryLinear linear(torch::nn::LinearOptions(9, 4));
  const at::Tensor x = torch::randn({2, 3, 9});
  const auto sign = [](const at::Tensor& v) { return v.ge(0).to(at::kFloat) * 2 - 1; };
  const at::Tensor expected =
      sign(x).matmul(sign(linear->weight).t()) * linear->weight.abs().mean(1) + linear->bias;
  EXPECT_TRUE(at::allclose(linear(x), expected, 1e-6, 1e-6));
  EXPECT_THROW(BinaryLinear(torch::nn::LinearOptions(9, 4), BinaryLayerOptions{.scale = BinaryScale::full}),
               Error);
}

TEST(BinaryLinear, TernaryWeightsHaveTheirOwnScale) {
  torch::manual_seed(6);
  BinaryLinear linear(torch::nn::LinearOptions(16, 4).bias(false), BinaryLayerOptions{.ternary = true});
  const at::Tensor x = torch::randn({3, 16});
  EXPECT_TRUE(linear(x).equal(at::linear(binarize(x), ternarize(linear->weight))));
  EXPECT_TRUE(latent_weights(*linear).empty());
}

TEST(ReActNet, ShiftsMoveSignAndCurve) {
  RSign sign(2);
  RPReLU curve(2);
  const at::NoGradGuard no_grad;
  sign->shift.copy_(torch::tensor({0.5F, -0.5F}));
  const at::Tensor x = torch::tensor({{{-0.5F}, {0.4F}}, {{-0.6F}, {0.5F}}});
  EXPECT_TRUE(sign(x).equal(torch::tensor({{{1.0F}, {-1.0F}}, {{-1.0F}, {1.0F}}}))) << sign(x);
  curve->before.copy_(torch::tensor({1.0F, 0.0F}));
  curve->after.copy_(torch::tensor({0.0F, 2.0F}));
  const at::Tensor y = curve(torch::tensor({{-3.0F, -4.0F}, {0.0F, 4.0F}}));
  EXPECT_TRUE(y.equal(torch::tensor({{-0.5F, 1.0F}, {1.0F, 6.0F}}))) << y;
}

TEST(LatentWeights, AreFoundInModelsAndCapturesAndClipped) {
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Conv2d(Conv2dOptions(1, 8, 3)), BinaryConv2d(Conv2dOptions(8, 8, 3)),
                              torch::nn::Flatten(), BinaryLinear(torch::nn::LinearOptions(32, 4)));
  const std::vector<std::string> expected = {"1.weight", "3.weight"};
  EXPECT_EQ(latent_weights(*model), expected);
  const at::Tensor x = torch::randn({2, 1, 6, 6});
  const auto captured = capture(model, {x});
  EXPECT_EQ(latent_weights(*captured), expected);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(100);
  }
  clip_latent_weights(*captured);  // the same tensors
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["1.weight"].abs().max().item<float>(), 1.0F);
  EXPECT_EQ(parameters["3.weight"].abs().max().item<float>(), 1.0F);
  EXPECT_GT(parameters["0.weight"].abs().max().item<float>(), 1.0F);
}

TEST(PackBinaryWeights, KeepsEveryBitInAThirtiethOfTheBytes) {
  for (const BinaryScale scale : kScales) {
    torch::manual_seed(8);
    torch::nn::Sequential model(torch::nn::Conv2d(Conv2dOptions(1, 64, 3).padding(1)),
                                torch::nn::BatchNorm2d(64),
                                BinaryConv2d(Conv2dOptions(64, 64, 3), BinaryLayerOptions{.scale = scale},
                                             std::vector<int64_t>{4, 4}));
    const at::Tensor x = torch::randn({2, 1, 6, 6});
    model->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor y = model->forward(x);
    const auto packed = pack_binary_weights(capture(model, {x}));
    EXPECT_TRUE(packed->forward(x).equal(y)) << enum_name(scale);
    EXPECT_EQ(packed->named_buffers()["2.weight.signs"].sizes(), (std::vector<int64_t>{64, 3, 3, 8}));
    for (const auto& parameter : packed->named_parameters()) EXPECT_NE(parameter.key(), "2.weight");
  }
}

}  // namespace
}  // namespace ulp::quant
