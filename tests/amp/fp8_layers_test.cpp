// Fp8Linear, Fp8Conv2d and the guard around them.
#include "ulp/amp/fp8/fp8_layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "error_of.h"
#include "fp8_support.h"
#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_layers_of.h"
#include "ulp/amp/fp8/fp8_ops.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using namespace ulp::amp;
using ulp::test::error_of;
using ulp::test::with;

TEST(Fp8Layers, AreInFp8WithARecipeOfTheirOwn) {
  torch::manual_seed(1);
  Fp8Linear linear(32, 8, with(Fp8Scaling::current));
  Fp8Conv2d conv(torch::nn::Conv2dOptions(4, 8, 3).padding(1).stride(2), with(Fp8Scaling::mxfp8));
  const at::Tensor x = torch::randn({4, 32}), image = torch::randn({2, 4, 7, 7});
  EXPECT_TRUE(
      torch::equal(linear(x), fp8_linear(x, linear->weight, linear->bias, with(Fp8Scaling::current))));
  const at::Tensor plain = at::conv2d(image, conv->weight, conv->bias, 2, 1);
  EXPECT_FALSE(torch::equal(conv(image), plain));
  EXPECT_TRUE(torch::allclose(conv(image), plain, 0.2, 0.2));
  const Fp8Autocast off(false);
  EXPECT_TRUE(torch::equal(conv(image), plain));
}

TEST(Fp8Layers, TakeTheInnermostGuardsRecipe) {
  torch::manual_seed(1);
  Fp8Linear linear(32, 8);
  const at::Tensor x = torch::randn({4, 32});
  const auto in = [&](Fp8Scaling scaling) {
    return fp8_linear(x, linear->weight, linear->bias, with(scaling));
  };
  const at::Tensor plain = at::linear(x, linear->weight, linear->bias);
  EXPECT_TRUE(torch::equal(linear(x), plain));
  {
    const Fp8Autocast without(true);
    EXPECT_TRUE(torch::equal(linear(x), plain));
    const Fp8Autocast outer(true, with(Fp8Scaling::current));
    EXPECT_TRUE(torch::equal(linear(x), in(Fp8Scaling::current)));
    {
      const Fp8Autocast inner(true, with(Fp8Scaling::rowwise));
      EXPECT_TRUE(torch::equal(linear(x), in(Fp8Scaling::rowwise)));
      const Fp8Autocast off(false);
      EXPECT_TRUE(torch::equal(linear(x), plain));
      const Fp8Autocast again(true);
      EXPECT_TRUE(torch::equal(linear(x), in(Fp8Scaling::rowwise)));
    }
    EXPECT_TRUE(torch::equal(linear(x), in(Fp8Scaling::current)));
    std::thread([&] { EXPECT_TRUE(torch::equal(linear(x), plain)); }).join();
  }
  EXPECT_TRUE(torch::equal(linear(x), plain));
}

TEST(Fp8Layers, AnExceptionEndsAGuardToo) {
  try {
    const Fp8Autocast off(false);
    throw std::runtime_error("x");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(Fp8Setting::current().enabled);
  EXPECT_ERROR(Fp8Autocast(true,
                           [] {
                             Fp8LayerRecipe bad;
                             bad.history = 0;
                             return bad;
                           }()),
               "expected layers.history");
  EXPECT_TRUE(Fp8Setting::current().enabled);
}

TEST(Fp8Layers, KeepDelayedScalesInBuffers) {
  Fp8LayerRecipe recipe;
  recipe.history = 4;
  Fp8Linear own(8, 8, recipe), guarded(8, 8);
  EXPECT_EQ(own->named_buffers()["fp8_amax_history"].sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(guarded->named_buffers().size(), 0U);
  {
    const Fp8Autocast fp8(true, recipe);
    (own(torch::ones({2, 8})) + guarded(torch::full({2, 8}, 2.0))).sum().backward();
  }
  torch::nn::Sequential both(own, guarded);
  update_fp8(*both);
  EXPECT_EQ(own->named_buffers()["fp8_scale"][0].item<float>(), 448.0F);
  EXPECT_EQ(guarded->named_buffers()["fp8_scale"][0].item<float>(), 224.0F);
  recipe.history = 6;
  const Fp8Autocast longer(true, recipe);
  guarded(torch::ones({2, 8}));
  EXPECT_EQ(guarded->named_buffers()["fp8_amax_history"].sizes(), (std::vector<int64_t>{3, 6}));
}

TEST(Fp8Layers, AnEvaluationBetweenStepsChangesNothing) {
  const auto scales = [](bool evaluates) {
    torch::manual_seed(1);
    Fp8LayerRecipe recipe;
    recipe.history = 4;
    Fp8Linear layer(8, 4, recipe);
    const at::Tensor x = torch::randn({2, 8});
    for (int step = 0; step < 2; ++step) {
      if (evaluates) {
        const torch::NoGradGuard no_grad;
        layer(x);
      }
      layer(x).sum().backward();
      update_fp8(*layer);
    }
    return layer->named_buffers()["fp8_scale"];
  };
  EXPECT_TRUE(torch::equal(scales(false), scales(true)));
}

TEST(Fp8Layers, GradientsOfGradientsAreErrors) {
  for (const Fp8LayerRecipe& recipe : ulp::test::every_recipe()) {
    Fp8Linear linear(16, 4, recipe);
    Fp8Conv2d conv(torch::nn::Conv2dOptions(2, 4, 3), recipe);
    const at::Tensor x = torch::randn({2, 16}).requires_grad_(),
                     image = torch::randn({2, 2, 5, 5}).requires_grad_();
    const auto twice = [](const at::Tensor& y, const at::Tensor& of) {
      torch::autograd::grad({y.square().sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    };
    EXPECT_ERROR(twice(linear(x), x), "[amp.fp8] expected a backward pass without create_graph");
    EXPECT_ERROR(twice(conv(image), image), "[amp.fp8] expected a backward pass without create_graph");
  }
}

TEST(Fp8Layers, TakeNoSamples) {
  for (const Fp8LayerRecipe& recipe : ulp::test::every_recipe()) {
    Fp8Linear layer(5, 3, recipe);
    const at::Tensor x = torch::zeros({0, 5}).requires_grad_();
    const at::Tensor y = layer(x);
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{0, 3}));
    y.sum().backward();
    EXPECT_TRUE(torch::equal(layer->weight.grad(), torch::zeros({3, 5}))) << recipe.text();
  }
}

TEST(Fp8Layers, AreCapturedAsTheOps) {
  torch::manual_seed(1);
  torch::nn::Sequential net(Fp8Linear(8, 8, with(Fp8Scaling::current)), torch::nn::ReLU(),
                            Fp8Linear(8, 4, Fp8LayerRecipe()));
  const at::Tensor x = torch::randn({2, 8});
  const auto captured = ulp::capture(*net, {x});
  EXPECT_EQ(fp8_layers_of(*captured).size(), 2U);
  EXPECT_TRUE(torch::equal(captured->forward(x), net->forward(x)));
}

TEST(Fp8Layers, OtherPaddingsAreErrors) {
  EXPECT_ERROR(Fp8Conv2d(torch::nn::Conv2dOptions(1, 1, 3).padding_mode(torch::kReflect)),
               "[amp.Fp8Conv2d] expected the padding as numbers, of zeros");
}

}  // namespace
