// Volumes: convolutions, pooling and resizing of three dimensions, engine against LibTorch.
#include <gtest/gtest.h>

#include <type_traits>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using runtime::DataType;

/// f32 and bf16 within rounding at three batch sizes, on every instruction set.
void expect_as_libtorch(graph::GraphModule& module, const std::vector<int64_t>& item) {
  const torch::NoGradGuard no_grad;
  for (const auto precision : {LowerOptions::Precision::f32, LowerOptions::Precision::bf16}) {
    const bool narrow = precision == LowerOptions::Precision::bf16;
    const runtime::Plan plan = lower(module, {.precision = precision});
    each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
      EXPECT_LE(relative_error(got, module.forward({x})),
                rounding_bound(plan, kF32, narrow ? 2 * kBF16 : kF32))
          << listing(plan);
    });
  }
}

void expect_body(const Body& body, const std::vector<int64_t>& item) {
  std::vector<int64_t> two = item;
  two.insert(two.begin(), 2);
  expect_as_libtorch(*captured_body(body, torch::randn(two)), item);
}

template <typename Layer>
void expect_layer(Layer layer, const std::vector<int64_t>& item) {
  auto net = std::make_shared<Net>();
  net->add("layer", layer);
  net->body = [=](const Tensor& x) mutable { return torch::relu(layer(x)); };
  std::vector<int64_t> two = item;
  two.insert(two.begin(), 2);
  expect_as_libtorch(*captured(net, torch::randn(two)), item);
}

TEST(Volumes, ConvolutionsOfEveryKind) {
  torch::manual_seed(1);
  using Options = nn::Conv3dOptions;
  for (const Options& options :
       {Options(6, 8, 3).padding(1),
        Options(6, 8, {3, 1, 1}).stride({2, 1, 1}).padding({1, 0, 0}).bias(false),
        Options(6, 8, {1, 3, 3}).stride({1, 2, 2}),
        Options(6, 6, {3, 2, 5}).padding({2, 1, 2}).dilation({2, 1, 2}),
        Options(6, 9, {2, 3, 3}).groups(3).padding({0, 1, 1}), Options(6, 6, 3).groups(6).padding(1),
        Options(6, 5, {5, 7, 8}), Options(6, 4, 1).stride({3, 1, 2})}) {
    expect_layer(nn::Conv3d(options), {6, 5, 7, 8});
  }
  expect_layer(nn::Conv3d(Options(1, 3, 3).padding(1)), {1, 4, 5, 6});
}

/// A residual block of films: no volume leaves the layout in which its channels are innermost.
struct Films : nn::Module {
  nn::Conv3d first{nullptr}, second{nullptr};
  nn::BatchNorm3d norm{nullptr}, free_norm{nullptr};
  nn::Linear last{nullptr};
  Films() {
    first = register_module("first", nn::Conv3d(nn::Conv3dOptions(3, 8, 3).padding(1).stride({1, 2, 2})));
    norm = register_module("norm", nn::BatchNorm3d(8));
    free_norm = register_module("free_norm", nn::BatchNorm3d(8));
    second = register_module("second", nn::Conv3d(nn::Conv3dOptions(8, 8, 3).padding(1)));
    last = register_module("last", nn::Linear(16, 4));
  }
  Tensor forward(Tensor x) {
    x = torch::relu(norm(first(x)));
    x = torch::max_pool3d(x, {1, 2, 2});
    x = torch::cat({free_norm(torch::relu(x + second(x))), torch::silu(x) * 0.5 + x}, 1);
    return last(torch::adaptive_avg_pool3d(x, {1, 1, 1}).flatten(1));
  }
};

TEST(Volumes, StayInOneLayout) {
  torch::manual_seed(2);
  const auto module = captured(std::make_shared<Films>(), torch::randn({2, 3, 4, 12, 10}));
  expect_as_libtorch(*module, {3, 4, 12, 10});
  const runtime::Plan plan = lower(*module);
  int converts = 0;
  for (const runtime::Step& step : plan.steps) converts += step.op == runtime::Op::convert;
  EXPECT_EQ(converts, 1) << listing(plan);  // of the input
}

TEST(Volumes, ConvolutionsOfCodes) {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  const auto module = captured(std::make_shared<Films>(), torch::randn({2, 3, 4, 12, 10}));
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->forward(torch::randn({8, 3, 4, 12, 10}));
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  int layers = 0;
  for (const runtime::Step& step : plan.steps) {
    if (step.op != runtime::Op::conv) continue;
    ++layers;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(step.inputs[0])].type, DataType::u8) << listing(plan);
  }
  EXPECT_EQ(layers, 3);
  each_run(plan, {3, 4, 12, 10}, 1, [&](const Tensor& x, const Tensor& got) {
    EXPECT_GE(quant::quantization_error(quantized->forward({x}), got).sqnr_db, 30) << listing(plan);
    EXPECT_GE(quant::quantization_error(module->forward({x}), got).sqnr_db, 20);
  });
}

TEST(Volumes, PoolingOfEveryKind) {
  for (const bool ceil : {false, true}) {
    expect_body([=](const Tensor& x) { return torch::max_pool3d(x, 2, 2, 0, 1, ceil); }, {3, 5, 7, 6});
    expect_body(
        [=](const Tensor& x) {
          return torch::max_pool3d(x, {3, 2, 3}, {1, 2, 2}, {1, 1, 0}, {2, 1, 2}, ceil);
        },
        {3, 5, 7, 6});
    for (const bool include : {false, true}) {
      expect_body(
          [=](const Tensor& x) {
            return torch::avg_pool3d(x, {3, 2, 3}, {2, 1, 3}, {1, 1, 0}, ceil, include);
          },
          {3, 5, 7, 6});
      expect_body(
          [=](const Tensor& x) {
            return torch::avg_pool3d(x, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}, ceil, include);
          },
          {3, 5, 7, 6});
    }
  }
  expect_body([](const Tensor& x) { return torch::avg_pool3d(x, 2, 2, 1, false, false, 5); }, {3, 5, 7, 6});
  expect_body(
      [](const Tensor& x) {
        return torch::avg_pool2d(x, {3, 2}, {2, 1}, {1, 0}, false, false, 7);
      },
      {3, 5, 7});
  expect_body([](const Tensor& x) { return std::get<0>(at::max_pool3d_with_indices(x, 2)); }, {3, 4, 6, 6});
  expect_body([](const Tensor& x) { return std::get<0>(at::max_pool2d_with_indices(x, 2)); }, {3, 6, 6});
}

TEST(Volumes, AdaptivePooling) {
  for (const std::vector<int64_t>& size : {std::vector<int64_t>{1, 1, 1}, {2, 7, 3}, {3, 2, 4}, {4, 7, 9}}) {
    expect_body([=](const Tensor& x) { return torch::adaptive_avg_pool3d(x, size); }, {3, 4, 7, 9});
    expect_body([=](const Tensor& x) { return std::get<0>(torch::adaptive_max_pool3d(x, size)); },
                {3, 4, 7, 9});
    expect_body(
        [=](const Tensor& x) {
          return std::get<0>(torch::adaptive_max_pool2d(torch::relu(x), {size[1], size[2]}));
        },
        {3, 7, 9});
    expect_body([=](const Tensor& x) { return std::get<0>(torch::adaptive_max_pool1d(x * 2, size[2])); },
                {3, 9});
  }
}

TEST(Volumes, TransposedConvolutions) {
  torch::manual_seed(4);
  expect_layer(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, 2).stride(2)), {4, 3, 4, 5});
  expect_layer(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, {3, 4, 3})
                                       .stride({1, 2, 2})
                                       .padding({1, 1, 0})
                                       .output_padding({0, 0, 1})
                                       .groups(2)),
               {4, 3, 4, 5});
  expect_layer(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 4).stride(2).padding(1)), {4, 9});
  expect_layer(
      nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3).dilation(2).stride(3).output_padding(1)),
      {4, 9});
}

/// Int8: a convolution, the transposed one, another. The phases are joined as codes.
template <typename Conv, typename Up>
void expect_codes(Up up, const std::vector<int64_t>& item) {
  const torch::NoGradGuard no_grad;
  using Options =
      typename std::conditional_t<std::is_same_v<Conv, nn::Conv1d>, nn::Conv1dOptions, nn::Conv3dOptions>;
  auto net = std::make_shared<Net>();
  auto first = net->add("first", Conv(Options(item[0], 4, 3).padding(1))),
       last = net->add("last", Conv(Options(6, 2, 1)));
  net->add("up", up);
  net->body = [=](const Tensor& x) mutable { return last(torch::relu(up(torch::relu(first(x))))); };
  const auto drawn = [&](int64_t n) {
    std::vector<int64_t> sizes = item;
    sizes.insert(sizes.begin(), n);
    return torch::randn(sizes);
  };
  const auto module = captured(net, drawn(2));
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->forward(drawn(8));
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  int layers = 0, joins = 0;
  for (const runtime::Step& step : plan.steps) {
    const bool layer = step.op == runtime::Op::conv, join = step.op == runtime::Op::depth_to_space;
    if (!layer && !join) continue;
    layers += layer ? 1 : 0;
    joins += join ? 1 : 0;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(step.inputs[0])].type, DataType::u8) << listing(plan);
  }
  EXPECT_EQ(layers, 3) << listing(plan);
  EXPECT_EQ(joins, item.size() == 2 ? 1 : 2) << listing(plan);
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    EXPECT_GE(quant::quantization_error(quantized->forward({x}), got).sqnr_db, 30) << listing(plan);
    EXPECT_GE(quant::quantization_error(module->forward({x}), got).sqnr_db, 20);
  });
}

TEST(Volumes, TransposedConvolutionsOfCodes) {
  torch::manual_seed(5);
  expect_codes<nn::Conv1d>(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 4).stride(2).padding(1)),
                           {3, 9});
  expect_codes<nn::Conv1d>(
      nn::ConvTranspose1d(nn::ConvTranspose1dOptions(4, 6, 3).dilation(2).stride(3).output_padding(1)),
      {3, 9});
  expect_codes<nn::Conv3d>(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, 2).stride(2)), {3, 3, 4, 5});
  expect_codes<nn::Conv3d>(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(4, 6, {3, 4, 3})
                                                   .stride({2, 3, 2})
                                                   .padding({1, 1, 0})
                                                   .output_padding({0, 1, 1})
                                                   .groups(2)),
                           {3, 3, 4, 5});
}

TEST(Volumes, ResizedByEveryRule) {
  namespace F = nn::functional;
  using Options = F::InterpolateFuncOptions;
  const std::vector<double> factors = {1.7, 0.6, 2};
  for (const auto& size : {std::vector<int64_t>{6, 5, 11}, {2, 9, 7}, {1, 1, 1}}) {
    expect_body(
        [=](const Tensor& x) { return F::interpolate(x, Options().size(size).mode(torch::kNearest)); },
        {3, 4, 5, 7});
    expect_body(
        [=](const Tensor& x) { return F::interpolate(x, Options().size(size).mode(torch::kNearestExact)); },
        {3, 4, 5, 7});
    for (const bool corners : {false, true}) {
      expect_body(
          [=](const Tensor& x) {
            return F::interpolate(x, Options().size(size).mode(torch::kTrilinear).align_corners(corners));
          },
          {3, 4, 5, 7});
    }
  }
  expect_body(
      [=](const Tensor& x) {
        return F::interpolate(x, Options().scale_factor(factors).mode(torch::kNearest));
      },
      {3, 4, 5, 7});
  expect_body(
      [=](const Tensor& x) {
        return F::interpolate(x,
                              Options().scale_factor(factors).mode(torch::kTrilinear).align_corners(false));
      },
      {3, 4, 5, 7});
}

}  // namespace
}  // namespace ulp::test
