// The reference networks through prepare and convert: what is fused, and how close the result stays.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ulp/graph/capture/capture.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

struct ModelCase {
  const char* model;
  size_t chains;     // quantized ops with what is fused behind them
  size_t leftovers;  // ops that stay float and say why
  double floor_db;   // signal to quantization noise of the logits
};

class Models : public testing::TestWithParam<ModelCase> {};

at::Tensor images(int64_t batch) {
  return torch::randn({batch, 3, 32, 32}) + 0.2;
}

TEST_P(Models, QuantizedLogitsStayClose) {
  const ModelCase& expected = GetParam();
  torch::manual_seed(3);
  const auto model = models::make_model(expected.model);
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 2; ++i) model->forward(images(8));  // statistics for the batch norms
  model->eval();
  const auto prepared = prepare(capture(*model, {images(2)}), Recipe::x86_int8());
  for (int i = 0; i < 2; ++i) prepared->forward(images(16));
  graph::PassReport report;
  const auto converted = convert(prepared, &report);
  EXPECT_EQ(report.changes.size(), expected.chains) << testing::PrintToString(report.changes);
  EXPECT_EQ(report.near_misses.size(), expected.leftovers) << testing::PrintToString(report.near_misses);
  const at::Tensor x = images(8), exact = model->forward(x), error = exact - converted->forward(x);
  EXPECT_GT(10 * std::log10((exact.square().sum() / error.square().sum()).item<double>()), expected.floor_db);
}

INSTANTIATE_TEST_SUITE_P(All, Models,
                         testing::Values(ModelCase{"mlp", 3, 0, 33}, ModelCase{"lenet5", 5, 0, 36},
                                         ModelCase{"resnet20", 22, 0, 30},
                                         ModelCase{"mobilenet_v2", 53, 0, 30}, ModelCase{"unet", 18, 0, 22}),
                         [](const auto& info) { return info.param.model; });

}  // namespace
}  // namespace ulp::quant
