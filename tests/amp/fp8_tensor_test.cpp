// Quantizers of the fp8 recipes: agreement with the number formats of the house, and values that are not finite.
#include "ulp/amp/fp8/fp8_tensor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "constants.h"
#include "error_of.h"
#include "fp8_support.h"
#include "ulp/formats/block.h"

namespace {

using namespace ulp::amp;
using ulp::test::error_of;
using ulp::test::golden_values;
using ulp::test::with;

TEST(Fp8Tensor, BlocksAreThoseOfTheFormats) {
  const at::Tensor x = golden_values(3, {3, 64});
  Fp8LayerRecipe mx = with(Fp8Scaling::mxfp8);
  mx.mx_rounding = MxRounding::floor;
  for (const auto& [recipe, name] :
       {std::pair{mx, "mxfp8_e4m3"}, std::pair{with(Fp8Scaling::nvfp4), "nvfp4"}}) {
    const auto& format = ulp::formats::find_block(name);
    const std::span<const float> all(x.data_ptr<float>(), static_cast<size_t>(x.numel()));
    const float tensor_scale = ulp::formats::tensor_scale(format, all);
    const Fp8Tensor made = quantize_fp8(x, recipe, Fp8Role::input);
    const at::Tensor values = made.dequantized();
    const ulp::formats::Cast cast;
    for (size_t at = 0; at < all.size(); at += static_cast<size_t>(format.size)) {
      const auto part = all.subspan(at, static_cast<size_t>(format.size));
      const auto block = ulp::formats::quantize_block(format, part, tensor_scale, {&cast, 1});
      EXPECT_EQ(made.scale_codes.data_ptr<uint8_t>()[at / part.size()], block.scale) << name << ' ' << at;
      const auto expected = ulp::formats::dequantize_block(format, block, tensor_scale);
      for (size_t i = 0; i < part.size(); ++i)
        ASSERT_EQ(values.data_ptr<float>()[at + i], expected[i]) << name << ' ' << at + i;
    }
  }
}

TEST(Fp8Tensor, EveryRecipeKeepsWhatItsFormatHolds) {
  // Of each 16 neighbours one is 1, and the others are halves and fourths of it.
  at::Tensor x = torch::zeros({32, 160});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data_ptr<float>()[i] = (i % 2 ? -1.0F : 1.0F) / static_cast<float>(1 << (i % 3));
  for (const Fp8LayerRecipe& recipe : ulp::test::every_recipe()) {
    if (recipe.scaling == Fp8Scaling::delayed) continue;
    for (const Fp8Role role : kFp8Roles) {
      const Fp8Tensor made = quantize_fp8(x, recipe, role);
      EXPECT_TRUE(torch::allclose(made.dequantized(), x, 1e-6, 0)) << recipe.text() << ulp::enum_name(role);
      EXPECT_EQ(made.codes.sizes(), x.sizes());
    }
  }
}

TEST(Fp8Tensor, StridesOfImagesAreKept) {
  const at::Tensor x = golden_values(1, {2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto& format = ulp::formats::find("e4m3fn");
  const Fp8Tensor made = quantize_whole(x, format, torch::tensor(2.0F));
  EXPECT_EQ(made.codes.strides(), x.strides());
  const Fp8Tensor plain = quantize_whole(x.contiguous(), format, torch::tensor(2.0F));
  EXPECT_TRUE(torch::equal(made.values(), plain.values()));
}

TEST(Fp8Tensor, InfinitiesSaturateUnderOneScaleAndNansStay) {
  const at::Tensor x = torch::tensor({kInf, -kInf, NAN, 1.0F});
  for (const char* name : {"e4m3fn", "e5m2"}) {
    const auto& format = ulp::formats::find(name);
    const at::Tensor values = quantize_whole(x, format, torch::tensor(1.0F)).values();
    EXPECT_EQ(values[0].item<double>(), format.max());
    EXPECT_EQ(values[1].item<double>(), format.lowest());
    EXPECT_TRUE(std::isnan(values[2].item<double>()));
    EXPECT_EQ(values[3].item<double>(), 1.0);
  }
}

TEST(Fp8Tensor, AnAmaxOfZeroOrNoNumberMakesTheScaleOne) {
  const auto& format = ulp::formats::find("e4m3fn");
  for (const float amax : {0.0F, kInf, static_cast<float>(NAN)})
    EXPECT_EQ(current_scale(torch::tensor(amax), format, false).item<float>(), 1.0F) << amax;
  EXPECT_EQ(current_scale(torch::tensor(1e-44F), format, false).item<float>(),
            std::numeric_limits<float>::max());
  EXPECT_EQ(current_scale(torch::tensor(3.0F), format, true).item<float>(), 128.0F);
}

TEST(Fp8Tensor, ABlockThatIsNotFiniteIsNanAndOthersAreNot) {
  at::Tensor x = torch::ones({1, 64});
  x[0][3] = kInf;
  for (const Fp8Scaling scaling : {Fp8Scaling::mxfp8, Fp8Scaling::nvfp4}) {
    const at::Tensor values = quantize_fp8(x, with(scaling), Fp8Role::input).dequantized();
    EXPECT_TRUE(std::isnan(values[0][0].item<float>())) << ulp::enum_name(scaling);
    EXPECT_EQ(values[0][63].item<float>(), 1.0F) << ulp::enum_name(scaling);
  }
}

TEST(Fp8Tensor, AmaxSeesWhatIsNotFinite) {
  EXPECT_EQ(amax_of(torch::tensor({-3.0F, 2.0F})).item<float>(), 3.0F);
  EXPECT_TRUE(std::isinf(amax_of(torch::tensor({-kInf, 2.0F})).item<float>()));
  EXPECT_TRUE(std::isnan(amax_of(torch::tensor({static_cast<float>(NAN), 2.0F})).item<float>()));
  EXPECT_EQ(amax_of(torch::zeros({0, 3})).item<float>(), 0.0F);
}

TEST(Fp8Tensor, HadamardIsItsOwnInverseAndKeepsProducts) {
  const at::Tensor a = ulp::test::eighths({3, 48}, 1), b = ulp::test::eighths({5, 48}, 2);
  EXPECT_TRUE(torch::allclose(hadamard_16(hadamard_16(a)), a, 0, 1e-6));
  EXPECT_TRUE(torch::allclose(torch::mm(hadamard_16(a), hadamard_16(b).t()), torch::mm(a, b.t()), 0, 1e-5));
  EXPECT_EQ(hadamard_16(torch::ones({2, 20})).sizes(), (std::vector<int64_t>{2, 32}));
}

TEST(Fp8Tensor, StochasticRoundingIsRightOnAverage) {
  const at::Tensor x = torch::full({1, 16 * 4096}, 2.25F);  // between 2 and 3 where the scale is 1
  x.view({-1, 16}).select(1, 0).fill_(6);                   // which the largest of each block makes it
  Fp8LayerRecipe recipe = with(Fp8Scaling::nvfp4);
  const at::Tensor y =
      quantize_fp8(x, recipe, Fp8Role::gradient, ulp::formats::RandomKey{5, 0}).dequantized();
  const at::Tensor rest = x.view({-1, 16}).narrow(1, 1, 15), rounded = y.view({-1, 16}).narrow(1, 1, 15);
  EXPECT_NEAR((rounded.mean() / rest.mean()).item<double>(), 1.0, 0.01);
  EXPECT_TRUE(torch::equal(
      y, quantize_fp8(x, recipe, Fp8Role::gradient, ulp::formats::RandomKey{5, 0}).dequantized()));
}

TEST(Fp8Tensor, WhatCannotBeIsAnError) {
  EXPECT_EQ(error_of([] {
              quantize_fp8(torch::ones({2, 2}), with(Fp8Scaling::delayed), Fp8Role::input);
            }),
            "[amp.quantize_fp8] expected a recipe whose scales come from the tensor itself, got delayed");
  EXPECT_EQ(error_of([] {
              quantize_fp8(torch::ones({2, 64}), with(Fp8Scaling::mxfp8), Fp8Role::input).transposed();
            }),
            "[amp.Fp8Tensor.transposed] expected a matrix with one scale or square blocks, got blocks of "
            "1x32 of [2, "
            "64]");
}

}  // namespace
