// Images and sequences of another size by every rule, grids, and the norms that are spelled out: engine against
// LibTorch.
#include <gtest/gtest.h>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Options = F::InterpolateFuncOptions;

/// f32 within rounding and bf16 within bf16's, at three batch sizes on every instruction set. `steep`: how much larger
/// than itself a rounding of the input comes out.
void expect_sampled(const Body& body, const std::vector<int64_t>& item, double steep = 1) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> two = item;
  two.insert(two.begin(), 2);
  const auto module = captured_body(body, torch::randn(two));
  for (const auto precision : {LowerOptions::Precision::f32, LowerOptions::Precision::bf16}) {
    const bool narrow = precision == LowerOptions::Precision::bf16;
    const runtime::Plan plan = lower(*module, {.precision = precision});
    each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
      EXPECT_LE(relative_error(got, module->forward({x})),
                steep * rounding_bound(plan, kF32, narrow ? 2 * kBF16 : kF32))
          << listing(plan);
    });
  }
}

TEST(Resize, NearestPixelsByFactorsAndCentres) {
  for (const std::vector<double>& factor : {std::vector<double>{2.3, 0.7}, {0.45, 1.9}, {3, 2}}) {
    expect_sampled([=](const Tensor& x) { return F::interpolate(x, Options().scale_factor(factor)); },
                   {3, 7, 10});
    expect_sampled(
        [=](const Tensor& x) {
          return F::interpolate(x, Options().scale_factor(factor).mode(torch::kNearestExact));
        },
        {3, 7, 10});
  }
  expect_sampled(
      [](const Tensor& x) {
        return F::interpolate(x, Options().size(std::vector<int64_t>{9, 4}).mode(torch::kNearestExact));
      },
      {3, 7, 10});
}

TEST(Resize, CubicCurves) {
  for (const bool corners : {false, true}) {
    for (const std::vector<int64_t>& size : {std::vector<int64_t>{14, 20}, {3, 15}, {7, 1}})
      expect_sampled([=](const Tensor& x) { return at::upsample_bicubic2d(x, size, corners); }, {3, 7, 10},
                     2);
  }
  const std::vector<double> factor = {2.3, 0.7};
  expect_sampled(
      [=](const Tensor& x) {
        return F::interpolate(x, Options().scale_factor(factor).mode(torch::kBicubic).align_corners(false));
      },
      {3, 7, 10}, 2);
}

TEST(Resize, Sequences) {
  for (const int64_t size : {5, 9, 23}) {
    const std::vector<int64_t> sizes = {size};
    expect_sampled([=](const Tensor& x) { return F::interpolate(x, Options().size(sizes)); }, {3, 11});
    expect_sampled(
        [=](const Tensor& x) { return F::interpolate(x, Options().size(sizes).mode(torch::kNearestExact)); },
        {3, 11});
    for (const bool corners : {false, true})
      expect_sampled([=](const Tensor& x) { return at::upsample_linear1d(x, size, corners); }, {3, 11});
  }
  const std::vector<double> factor = {1.7};
  expect_sampled(
      [=](const Tensor& x) {
        return F::interpolate(x, Options().scale_factor(factor).mode(torch::kLinear).align_corners(false));
      },
      {3, 11});
}

TEST(Resize, WithAntialiasIsRefusedByName) {
  const auto module = captured_body(
      [](const Tensor& x) {
        return at::_upsample_bilinear2d_aa(x, {4, 4}, false);
      },
      torch::randn({2, 3, 9, 9}));
  EXPECT_ERROR(lower(*module), "antialias=False");
}

TEST(GridSample, EveryModeAndBorder) {
  // Places move by a pixel where the grid is rounded to 2^-9 of its range: in bf16 it stays f32.
  for (const int64_t mode : {0, 1, 2}) {
    for (const int64_t border : {0, 1, 2}) {
      for (const bool corners : {false, true}) {
        const torch::NoGradGuard no_grad;
        const Tensor grid = torch::rand({1, 4, 6, 2}) * 3 - 1.5;
        const auto module = captured_body(
            [=](const Tensor& x) {
              return at::grid_sampler(x, grid.expand({x.size(0), 4, 6, 2}), mode, border, corners);
            },
            torch::randn({2, 3, 5, 7}));
        for (const auto precision : {LowerOptions::Precision::f32, LowerOptions::Precision::bf16}) {
          const bool narrow = precision == LowerOptions::Precision::bf16;
          const runtime::Plan plan = lower(*module, {.precision = precision});
          // A place takes a few roundings of numbers up to 7; an image changes by its own size from pixel to pixel.
          const double bound = rounding_bound(plan, kF32, narrow ? 2 * kBF16 : kF32) + 7 * 8 * kF32 * 6;
          each_run(plan, {3, 5, 7}, 1, [&](const Tensor& x, const Tensor& got) {
            EXPECT_LE(relative_error(got, module->forward({x})), bound) << mode << border << corners;
          });
        }
      }
    }
  }
}

TEST(GridSample, SpatialTransformers) {
  for (const bool corners : {false, true}) {
    const torch::NoGradGuard no_grad;
    auto net = std::make_shared<Net>();
    auto places = net->add("places", torch::nn::Linear(3 * 5 * 7, 6));
    net->body = [=](const Tensor& x) mutable {
      const Tensor theta = places(x.flatten(1)).view({-1, 2, 3});
      const Tensor grid = at::affine_grid_generator(theta, {x.size(0), 3, 4, 6}, corners);
      return at::grid_sampler_2d(x, grid, 0, 1, corners);
    };
    const auto module = captured(net, torch::randn({2, 3, 5, 7}));
    const runtime::Plan plan = lower(*module);
    each_run(plan, {3, 5, 7}, 1, [&](const Tensor& x, const Tensor& got) {
      EXPECT_LE(relative_error(got, module->forward({x})), 7 * 8 * rounding_bound(plan, kF32, kF32))
          << listing(plan);
    });
  }
}

TEST(Norms, LocalResponseOfImagesAndSequences) {
  for (const int64_t size : {3, 4, 5}) {
    const auto options = F::LocalResponseNormFuncOptions(size).alpha(0.5).beta(0.75).k(2);
    expect_sampled([=](const Tensor& x) { return F::local_response_norm(x, options); }, {7, 5, 6});
    expect_sampled([=](const Tensor& x) { return F::local_response_norm(x, options); }, {7, 9});
    expect_sampled([=](const Tensor& x) { return F::local_response_norm(x, options); }, {7, 3, 4, 5});
  }
}

TEST(Sampled, GatedUnitsAndPartsSetToZero) {
  expect_sampled([](const Tensor& x) { return at::glu(x, 1); }, {6, 5, 7});
  expect_sampled([](const Tensor& x) { return at::glu(x, -1); }, {3, 8});
  expect_sampled([](const Tensor& x) { return x + at::full_like(x, 2.7, torch::kInt); }, {3, 8});
  expect_sampled(
      [](const Tensor& x) {
        Tensor mask = torch::ones({x.size(0), x.size(1), x.size(2)});
        mask.slice(1, 0, 2).zero_();
        return x * mask;
      },
      {5, 7});
}

TEST(Norms, RootMeanSquare) {
  auto net = std::make_shared<Net>();
  const Tensor weight = net->register_parameter("weight", torch::rand({6}) + 0.5);
  net->body = [=](const Tensor& x) {
    return at::rms_norm(x, {6}, weight, 1e-5) + at::rms_norm(x, {5, 6}) * at::rms_norm(x, {6}, {}, 0.1);
  };
  const auto module = captured(net, torch::randn({2, 5, 6}));
  const torch::NoGradGuard no_grad;
  for (const auto precision : {LowerOptions::Precision::f32, LowerOptions::Precision::bf16}) {
    const bool narrow = precision == LowerOptions::Precision::bf16;
    const runtime::Plan plan = lower(*module, {.precision = precision});
    each_run(plan, {5, 6}, 1, [&](const Tensor& x, const Tensor& got) {
      EXPECT_LE(relative_error(got, module->forward({x})),
                rounding_bound(plan, kF32, narrow ? 2 * kBF16 : kF32))
          << listing(plan);
    });
  }
}

TEST(Norms, InnerOpsAreThePublicOnes) {
  auto net = std::make_shared<Net>();
  const Tensor weight = net->register_parameter("weight", torch::rand({4}) + 0.5),
               bias = net->register_parameter("bias", torch::randn({4})),
               mean = net->register_buffer("mean", torch::randn({4})),
               var = net->register_buffer("var", torch::rand({4}) + 0.5),
               scale = net->register_parameter("scale", torch::rand({12}) + 0.5);
  net->body = [=](const Tensor& x) {
    const Tensor groups = std::get<0>(at::native_group_norm(x, weight, bias, x.size(0), 4, 36, 2, 1e-5));
    const Tensor batch =
        std::get<0>(at::_native_batch_norm_legit_no_training(groups, weight, bias, mean, var, 0.1, 1e-5));
    const Tensor pooled =
        at::_adaptive_avg_pool2d(std::get<0>(at::max_pool2d_with_indices(batch, 2)), {1, 3});
    const Tensor rows = std::get<0>(at::native_dropout(pooled.flatten(1), 0.5, false));
    return std::get<0>(at::native_layer_norm(rows, {12}, scale, {}, 1e-5));
  };
  const auto module = captured(net, torch::randn({2, 4, 6, 6}));
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*module);
  each_run(plan, {4, 6, 6}, 1, [&](const Tensor& x, const Tensor& got) {
    EXPECT_TRUE(torch::allclose(got, module->forward({x}), 1e-4, 1e-5)) << listing(plan);
  });
}

}  // namespace
}  // namespace ulp::test
