// Results of TensorFlow Lite files: [N, C, L] as the model has them, images as [N, H, W, C]; slices of a
// batch that is free.
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "tflite_run.h"
#include "ulp/exchange/export_tflite.h"

namespace ulp::test {

namespace {

using Sizes = std::vector<int32_t>;
using Body = std::function<at::Tensor(const at::Tensor&)>;

/// The file gives the numbers of the graph, in the graph's order but for images.
void expect_layout(const Body& body, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(body, x);
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = x.size(0)}));
  EXPECT_LE(relative_difference(module->forward(x), TfliteRun(*file).run({channels_last(x)}).at(0)), 1e-6);
}

}  // namespace

TEST(ExportLayout, ResultsOfThreeDimensionsKeepTheirOrder) {
  torch::manual_seed(1);
  const at::Tensor weight = torch::randn({5, 3, 3}), bias = torch::randn({5});
  const at::Tensor sequence = torch::randn({2, 3, 8}), square = torch::randn({2, 3, 3});
  expect_layout([&](const at::Tensor& x) { return torch::conv1d(x, weight, bias, 1, 1); }, sequence);
  expect_layout([&](const at::Tensor& x) { return torch::conv1d(x, weight, bias, 1, 1).relu() + 1; },
                sequence);
  expect_layout([](const at::Tensor& x) { return torch::max_pool1d(x, 2); }, sequence);
  expect_layout([](const at::Tensor& x) { return torch::avg_pool1d(x, 3, 1, 1); }, sequence);
  expect_layout([](const at::Tensor& x) { return x.transpose(1, 2); }, sequence);
  expect_layout([](const at::Tensor& x) { return x.transpose(1, 2) * 2; }, square);
  expect_layout([](const at::Tensor& x) { return torch::max_pool1d(x, 1, 1).permute({0, 2, 1}); }, square);
}

TEST(ExportLayout, ResultsOfFiveDimensionsKeepTheirOrder) {
  expect_layout(
      [](const at::Tensor& x) {
        return x.reshape({-1, 3, 2, 2, 2}).permute({0, 4, 1, 2, 3}) * 2;
      },
      torch::randn({2, 24}));
}

TEST(ExportLayout, ImagesLeaveWithTheirChannelsLast) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({1, 3, 4, 6});
  const auto module = captured_function([](const at::Tensor& one) { return torch::max_pool2d(one, 2); }, x);
  const auto file = read_tflite(exchange::export_tflite(*module));
  EXPECT_TRUE(
      torch::equal(channels_last(module->forward(x)), TfliteRun(*file).run({channels_last(x)}).at(0)));
}

TEST(ExportLayout, SlicesOfAFreeBatchFindTheirEndWhenTheyRun) {
  constexpr int kSlice = 65, kStrided = 45;
  const at::Tensor x = torch::randn({6, 4});
  const auto last = captured_function([](const at::Tensor& one) { return one.select(0, -1) * 2; }, x);
  const auto file = read_tflite(exchange::export_tflite(*last, {.batch = 0}));
  EXPECT_TRUE(file->of(kSlice).empty());
  ASSERT_EQ(file->of(kStrided).size(), 1U);
  EXPECT_EQ(file->input(file->of(kStrided)[0], 1).as<int32_t>(), (Sizes{-1, 0}));
  const auto halves = captured_function([](const at::Tensor& one) { return one.chunk(2)[0] * 2; }, x);
  EXPECT_ERROR(exchange::export_tflite(*halves, {.batch = 0}), "batch that is a number");
}

TEST(ExportLayout, WhatFollowsASliceOfAFreeBatchIsFreeToo) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(
      [](const at::Tensor& x) { return (x.slice(0, 0, 3) * 2).flatten(1) + 1; }, torch::randn({4, 3, 2}));
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 0}));
  ASSERT_EQ(file->of(kReshape).size(), 1U);
  EXPECT_EQ(file->input(file->of(kReshape)[0], 1).as<int32_t>(), (Sizes{-1, 6}));
  const at::Tensor x = torch::randn({1, 3, 2});
  EXPECT_TRUE(torch::equal(module->forward(x), TfliteRun(*file).run({x}).at(0)));
}

TEST(ExportLayout, SlicesOfABatchOfAnySizeHaveTheElementsOfTheGraph) {
  for (const int64_t batch : {1, 2, 5, 8}) {
    const torch::NoGradGuard no_grad;
    const auto module =
        captured_function([](const at::Tensor& x) { return x.slice(0, 0, 3) * 2; }, torch::randn({4, 2}));
    const at::Tensor x = torch::randn({batch, 2});
    const auto file = read_tflite(exchange::export_tflite(*module, {.batch = batch}));
    EXPECT_TRUE(torch::equal(module->forward(x), TfliteRun(*file).run({x}).at(0))) << batch;
  }
}

}  // namespace ulp::test
