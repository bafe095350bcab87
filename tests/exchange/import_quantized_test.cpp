// QuantizeLinear and DequantizeLinear as they come back: codes as they were, or fake quantization that
// trains.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_message.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using exchange::import_onnx;
using exchange::QdqForm;
using Module = std::shared_ptr<graph::GraphModule>;

/// A network in codes, with the images that it was calibrated on.
std::pair<Module, at::Tensor> in_codes(const std::string& name) {
  torch::manual_seed(3);
  const auto model = models::make_model(name, {.in_channels = 3, .image_size = 32});
  model->eval();
  const at::Tensor images = torch::randn({4, 3, 32, 32});
  const auto prepared = quant::prepare(capture(*model, {images}), quant::Recipe::onnx_qdq());
  prepared->forward(images);
  return {quant::convert(prepared), images};
}

size_t count_calls(const graph::Graph& graph, std::string_view op) {
  size_t count = 0;
  for (const auto& node : graph.nodes()) count += node->is(op);
  return count;
}

/// x [batch, 4] in codes times a weight of codes [4, 3], whose channels are the columns, as ONNX Runtime
/// writes it.
std::string product_in_codes() {
  return OnnxText()
      .input("x", {-1, 4})
      .floats("x_scale", {}, {0.5F})
      .tensor<uint8_t>("x_zero", 2, {}, {3})
      .tensor<int8_t>("w_quantized", 3, {4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, -10, -11, -12})
      .floats("w_scale", {3}, {0.1F, 0.2F, 0.3F})
      .tensor<int8_t>("w_zero", 3, {3}, {0, 0, 0})
      .node("QuantizeLinear", {"x", "x_scale", "x_zero"}, {"q"})
      .node("DequantizeLinear", {"q", "x_scale", "x_zero"}, {"d"})
      .node("DequantizeLinear", {"w_quantized", "w_scale", "w_zero"}, {"w"}, {{"axis", 1}})
      .node("MatMul", {"d", "w"}, {"y"})
      .output("y")
      .bytes();
}

}  // namespace

TEST(ImportQuantized, GivesCodesAndBitsBack) {
  const torch::NoGradGuard no_grad;
  const auto [module, images] = in_codes("resnet8");
  const Module again = import_onnx(exchange::export_onnx(*module), "model.onnx");
  size_t compared = 0;
  for (const auto& item : module->named_buffers()) {
    if (!item.key().ends_with(".int8") && !item.key().ends_with(".int32")) continue;
    ASSERT_TRUE(again->named_buffers().contains(item.key())) << item.key();
    EXPECT_TRUE(torch::equal(again->named_buffers()[item.key()], item.value())) << item.key();
    ++compared;
  }
  EXPECT_GT(compared, 10);
  for (const char* op : {"ulp::quantize", "ulp::dequantize", "ulp::average_codes"})
    EXPECT_EQ(count_calls(again->graph(), op), count_calls(module->graph(), op)) << op;
  EXPECT_TRUE(torch::equal(again->forward(images), module->forward(images)));
}

TEST(ImportQuantized, TheEngineGivesTheSameBits) {
  const auto [module, images] = in_codes("resnet8");
  const Module again = import_onnx(exchange::export_onnx(*module), "model.onnx");
  runtime::Engine one(lower(*module)), other(lower(*again));
  EXPECT_TRUE(torch::equal(run_engine_all(one, {images})[0], run_engine_all(other, {images})[0]));
}

TEST(ImportQuantized, FakeQuantizationGivesTheSameNumbersAndTrains) {
  const auto [module, images] = in_codes("lenet5");
  const std::string bytes = exchange::export_onnx(*module);
  const Module trained = import_onnx(bytes, "model.onnx", {.qdq = QdqForm::fake});
  EXPECT_EQ(count_calls(trained->graph(), "ulp::quantize"), 0);
  const at::Tensor before = import_onnx(bytes, "model.onnx")->forward(images);
  EXPECT_TRUE(torch::allclose(trained->forward(images), before, 1e-5, 1e-5));
  trained->train();
  trained->forward(images).square().mean().backward();
  EXPECT_TRUE(trained->named_parameters().contains("conv1.weight"));
  EXPECT_TRUE(trained->named_parameters().contains("fc3.bias"));
  for (const auto& item : trained->named_parameters())
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
}

TEST(ImportQuantized, AWeightOfColumnsBecomesALinearLayersWeight) {
  const Module module = import_onnx(product_in_codes(), "model.onnx");
  EXPECT_EQ(count_calls(module->graph(), "aten::linear"), 1);
  EXPECT_EQ(module->named_buffers()["w_quantized"].sizes(), (std::vector<int64_t>{3, 4}));
  const at::Tensor x = torch::tensor({{0.3F, 1.0F, -9.0F, 2.0F}});
  const at::Tensor rounded = torch::tensor({{0.5F, 1.0F, -1.5F, 2.0F}});
  const at::Tensor codes = torch::tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, -10, -11, -12}).view({4, 3});
  const at::Tensor expected = rounded.matmul(codes.to(torch::kFloat) * torch::tensor({0.1F, 0.2F, 0.3F}));
  EXPECT_TRUE(torch::allclose(module->forward(x), expected));
  const Module trained = import_onnx(product_in_codes(), "model.onnx", {.qdq = QdqForm::fake});
  EXPECT_EQ(trained->named_parameters()["w"].sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(torch::allclose(trained->forward(x), expected));
}

}  // namespace ulp::test
