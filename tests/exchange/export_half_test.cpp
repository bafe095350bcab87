// Models in half precision: types in the file, and what is refused.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_reader.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;
using Module = std::shared_ptr<graph::GraphModule>;
constexpr int64_t kFloatType = 1, kHalfType = 10;

Module half_network(const std::string& name, at::Tensor* first = nullptr) {
  torch::manual_seed(1);
  const auto model = models::make_model(name, {.in_channels = 3, .image_size = 32});
  model->eval();
  Module module = capture(*model, {torch::zeros({2, 3, 32, 32})});
  module->eval();
  if (first != nullptr) *first = module->parameters().front();
  return module;
}

}  // namespace

TEST(ExportHalf, WeightsAreHalvesInputsAndResultsAreNot) {
  const Module module = half_network("lenet5");
  const ReadModel model = read_onnx(export_onnx(*module, {.fp16 = true}));
  EXPECT_EQ(model.inputs.at(0).type, kFloatType);
  EXPECT_EQ(model.outputs.at(0).type, kFloatType);
  for (const auto& [name, tensor] : model.initializers) EXPECT_NE(tensor.type, kFloatType) << name;
  for (const auto& item : module->named_parameters()) {
    const at::Tensor half = item.value().detach().to(torch::kHalf).contiguous();
    EXPECT_EQ(model.initializers.at(item.key()).raw,
              std::string(static_cast<const char*>(half.const_data_ptr()), half.nbytes()))
        << item.key();
    EXPECT_EQ(item.value().scalar_type(), torch::kFloat) << "the model stays as it is";
  }
  ASSERT_EQ(model.of("Cast").size(), 2U);
  EXPECT_EQ(model.of("Cast")[0].attributes.at("to").i, kHalfType);
  EXPECT_EQ(model.of("Cast")[1].attributes.at("to").i, kFloatType);
}

TEST(ExportHalf, BatchNormsAreFoldedBeforeWeightsAreRounded) {
  const Module module = half_network("resnet8");
  const ReadModel model = read_onnx(export_onnx(*module, {.fp16 = true}));
  EXPECT_EQ(model.of("BatchNormalization").size(), 0U);
  for (const auto& [name, tensor] : model.initializers) EXPECT_NE(tensor.type, kFloatType) << name;
  EXPECT_TRUE(module->named_buffers().contains("bn1.running_mean")) << "the model stays as it is";
}

TEST(ExportHalf, OtherBatchNormsAndRecurrentLayersStayFloatBetweenCasts) {
  struct Net : torch::nn::Module {
    torch::nn::BatchNorm1d norm{6};
    torch::nn::LSTM lstm{torch::nn::LSTMOptions(4, 3).batch_first(true)};
    Net() {
      register_module("norm", norm);
      register_module("lstm", lstm);
    }
    at::Tensor forward(const at::Tensor& x) {
      return std::get<0>(lstm->forward(torch::relu(norm->forward(x))));
    }
  };
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  Net net;
  net.eval();
  const at::Tensor x = torch::randn({2, 6, 4});
  const Module module = capture(net, {x});
  module->eval();
  const std::string bytes = export_onnx(*module, {.fp16 = true});
  const ReadModel model = read_onnx(bytes);
  for (const char* op : {"BatchNormalization", "LSTM"}) {
    ASSERT_EQ(model.of(op).size(), 1U) << op;
    const ReadNode call = model.of(op)[0];
    for (size_t i = 1; i < call.inputs.size(); ++i) {
      const auto stored = model.initializers.find(call.inputs[i]);
      if (stored == model.initializers.end()) continue;
      EXPECT_EQ(stored->second.type, kFloatType) << call.inputs[i];
    }
  }
  const at::Tensor ours = module->forward(x), theirs = exchange::import_onnx(bytes, "model.onnx")->forward(x);
  EXPECT_FALSE(torch::equal(ours, theirs)) << "halves in between";
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 0.01 * ours.abs().max().item<double>());
}

TEST(ExportHalf, TheNumbersAreThoseOfHalves) {
  const torch::NoGradGuard no_grad;
  const Module module = half_network("lenet5");
  const auto back = exchange::import_onnx(export_onnx(*module, {.fp16 = true}), "model.onnx");
  const at::Tensor images = torch::randn({3, 3, 32, 32});
  const at::Tensor ours = module->forward(images), theirs = back->forward(images);
  EXPECT_EQ(theirs.scalar_type(), torch::kFloat);
  EXPECT_FALSE(torch::equal(ours, theirs));
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 0.01 * ours.abs().max().item<double>());
}

TEST(ExportHalf, RefusesWhatHalvesCannotHold) {
  at::Tensor first;
  const Module module = half_network("lenet5", &first);
  const torch::NoGradGuard no_grad;
  first.fill_(1e6);
  EXPECT_ERROR(export_onnx(*module, {.fp16 = true}),
               "expected numbers of at most 65504 for fp16, got 1e+06 in 'conv1");
  const Module codes = quant::quantize_weights(half_network("lenet5"));
  EXPECT_ERROR(export_onnx(*codes, {.fp16 = true}),
               "expected a float model for fp16, got ulp::dequantize_weight");
}

}  // namespace ulp::test
