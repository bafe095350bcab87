// ONNX files that come back: ours give the same bits under the same names. Files of other writers are compared by
// bench/peers/onnx_import.py.
#include "ulp/exchange/import_onnx.h"

#include <torch/torch.h>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"

namespace ulp::test {

namespace {

using exchange::import_onnx;
using Module = std::shared_ptr<graph::GraphModule>;

Module back(const graph::GraphModule& module, int64_t opset = 21, const exchange::OnnxImportOptions& options = {}) {
  return import_onnx(exchange::export_onnx(module, {.opset = opset}), "model.onnx", options);
}

void expect_same_bits(const Module& a, const Module& b, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> one = a->forward_all({x}), other = b->forward_all({x});
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(torch::equal(one[i], other[i]))
        << "result " << i << ": " << (one[i] - other[i]).abs().max().item<double>() << " of "
        << one[i].abs().max().item<double>();
  }
}

void expect_same_names(const Module& a, const Module& b) {
  const auto one = a->named_parameters(), other = b->named_parameters();
  for (const auto& item : one) {
    ASSERT_TRUE(other.contains(item.key())) << item.key();
    EXPECT_TRUE(torch::equal(item.value(), other[item.key()])) << item.key();
  }
  EXPECT_EQ(one.size(), other.size());
}

Module image_network_of(const std::string& name, int64_t side, int64_t channels) {
  torch::manual_seed(1);
  const auto model = models::make_model(name, {.in_channels = channels, .image_size = side});
  model->eval();
  Module module = capture(*model, {torch::zeros({2, channels, side, side})});
  module->eval();
  return module;
}

}  // namespace

TEST(ImportOnnx, GivesReferenceNetworksBackWithTheSameBits) {
  for (const std::string& name : models::model_names()) {
    SCOPED_TRACE(name);
    const int64_t side = name == "inception_v3" ? 75 : name == "mlp" || name.find("lenet") != std::string::npos ? 28 : 32;
    const int64_t channels = side == 28 ? 1 : 3;
    const Module module = image_network_of(name, side, channels);
    Module again;
    try { again = back(*module); } catch (const std::exception& e) { ADD_FAILURE() << e.what(); continue; }
    expect_same_names(module, again);
    for (const int64_t batch : {1, 5}) expect_same_bits(module, again, torch::randn({batch, channels, side, side}));
  }
}

TEST(ImportOnnx, GivesTextNetworksBackWithTheSameBits) {
  for (const std::string& name : models::text_model_names()) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    const auto model = models::make_text_model(name, {.task = models::text_model_tasks(name)[0], .max_length = 24});
    model->eval();
    graph::CaptureOptions options;
    options.free = {{0, 1, "time"}};
    Module module = capture(model, {torch::ones({2, 24}, torch::kLong)}, options);
    module->eval();
    Module again;
    try { again = back(*module, 21, {.sizes = {{"time", {.min = 1, .max = 24}}}}); } catch (const std::exception& e) { ADD_FAILURE() << e.what(); continue; }
    expect_same_names(module, again);
    for (const int64_t length : {24, 17}) expect_same_bits(module, again, torch::randint(1, 90, {3, length}));
  }
}

}  // namespace ulp::test
