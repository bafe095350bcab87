// Convolutions of one and three dimensions, and transposed ones, through static quantization and training.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

namespace nn = torch::nn;

/// conv, batch norm, relu, conv.
template <typename Conv, typename Norm>
nn::Sequential layers(Conv first, Norm norm, Conv second) {
  nn::Sequential model(first, norm, nn::ReLU(), second);
  const at::NoGradGuard no_grad;
  norm->running_mean.uniform_(-0.2, 0.2);
  norm->running_var.uniform_(0.5, 1.5);
  norm->weight.uniform_(0.5, 1.5);
  return model;
}

nn::Sequential sequences() {
  return layers(nn::Conv1d(nn::Conv1dOptions(3, 8, 3).stride(2)), nn::BatchNorm1d(8), nn::Conv1d(8, 4, 3));
}

nn::Sequential volumes() {
  return layers(nn::Conv3d(nn::Conv3dOptions(3, 8, 3).padding(1)), nn::BatchNorm3d(8), nn::Conv3d(8, 4, 2));
}

void expect_quantized(nn::Sequential model, const at::Tensor& x) {
  model->eval();
  const at::NoGradGuard no_grad;
  const auto prepared = prepare(capture(model, {x}), Recipe::x86_int8());
  prepared->forward(x);
  graph::PassReport report;
  const auto converted = convert(prepared, &report);
  EXPECT_EQ(report.changes, (std::vector<std::string>{"0 + relu quantized", "3 quantized"}));
  EXPECT_EQ(converted->graph().find_attribute("0.weight.scale")->tensor.numel(), 8);
  EXPECT_GE(quantization_error(model->forward(x), converted->forward(x)).sqnr_db, 30);
}

TEST(ConvDimensions, OneAndThreeAreQuantizedWithTheirBatchNorms) {
  torch::manual_seed(1);
  expect_quantized(sequences(), torch::randn({4, 3, 30}));
  expect_quantized(volumes(), torch::randn({4, 3, 5, 6, 7}));
}

void expect_trained(nn::Sequential model, const at::Tensor& x, BatchNormFolding folding) {
  auto qat = prepare_qat(capture(model, {x}), Recipe::x86_int8(), {.folding = folding});
  torch::optim::SGD optimizer(qat->parameters(), 1e-2);
  qat->forward({x}).square().mean().backward();
  optimizer.step();
  qat->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(qat->forward({x}).equal(convert_qat(qat)->forward(x)));
}

TEST(ConvDimensions, OneAndThreeTrainToTheConvertedBits) {
  torch::manual_seed(2);
  for (const BatchNormFolding folding : {BatchNormFolding::fast, BatchNormFolding::exact}) {
    expect_trained(sequences(), torch::randn({4, 3, 30}), folding);
    expect_trained(volumes(), torch::randn({4, 3, 5, 6, 7}), folding);
  }
}

TEST(ConvDimensions, TransposedConvolutionsAndBatchNormsAloneAreConvolutions) {
  torch::manual_seed(3);
  nn::Sequential model(nn::BatchNorm2d(3),
                       nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 6, 4).stride(2).padding(1)),
                       nn::ReLU(), nn::Conv2d(6, 4, 3));
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({4, 3, 6, 7});
  const auto captured = capture(model, {x});
  const auto prepared = prepare(captured, Recipe::x86_int8());
  prepared->forward(x);
  graph::PassReport report;
  const auto converted = convert(prepared, &report);
  EXPECT_EQ(report.changes, (std::vector<std::string>{"0 quantized", "1 + relu quantized", "3 quantized"}));
  EXPECT_EQ(report.near_misses,
            (std::vector<std::string>{"input -> 0 not folded: input is no convolution or linear layer"}));
  EXPECT_GE(quantization_error(model->forward(x), converted->forward(x)).sqnr_db, 30);
  // The parameters of the batch norm are to be trained.
  EXPECT_EQ(prepare_qat(captured, Recipe::x86_int8())->report().changes,
            (std::vector<std::string>{"1 + relu quantized", "3 quantized"}));
}

}  // namespace
}  // namespace ulp::quant
