// Layers that quantize their inputs as they run: operators and constants of the file. What ONNX Runtime computes from them is
// compared by bench/peers/onnx_check.py.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_reader.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;
using Module = std::shared_ptr<graph::GraphModule>;

Module dynamic_layer(bool per_tensor) {
  torch::manual_seed(1);
  torch::nn::Linear fc(6, 4);
  fc->eval();
  const auto forward = [&](const std::vector<at::Tensor>& inputs) -> c10::IValue {
    return fc->forward(inputs[0]);
  };
  return quant::quantize_dynamic(graph::capture(*fc, forward, {torch::randn({2, 3, 6})}),
                                 {.per_tensor = per_tensor});
}

/// The inputs of the one node of this operator.
std::vector<std::string> single_inputs(const ReadModel& model, const std::string& op) {
  const std::vector<ReadNode> nodes = model.of(op);
  EXPECT_EQ(nodes.size(), 1U) << op;
  return nodes.empty() ? std::vector<std::string>() : nodes[0].inputs;
}

}  // namespace

TEST(ExportDynamic, OneScaleForAllIsTheOperatorOfOnnx) {
  const Module module = dynamic_layer(true);
  const ReadModel model = read_onnx(export_onnx(*module));
  const std::vector<std::string> product = single_inputs(model, "MatMulInteger");
  ASSERT_EQ(product.size(), 3U);
  const ReadNode quantizer = *model.maker(product[0]);
  EXPECT_EQ(quantizer.op, "DynamicQuantizeLinear");
  EXPECT_EQ(product[2], quantizer.outputs.at(2));
  EXPECT_EQ(single_inputs(model, "Add").at(1), "bias");
  const ReadTensor& codes = model.initializers.at(product[1]);
  EXPECT_EQ(product[1], "weight.int8");
  EXPECT_EQ(codes.dims, (std::vector<int64_t>{6, 4}));
  const at::Tensor turned = module->named_buffers()["weight.int8"].t().contiguous();
  EXPECT_EQ(codes.raw, std::string(static_cast<const char*>(turned.const_data_ptr()), turned.nbytes()));
}

TEST(ExportDynamic, AScaleARowTakesZeroPointsOutOfTheSums) {
  const Module module = dynamic_layer(false);
  for (const int64_t opset : {17, 21}) {
    const ReadModel model = read_onnx(export_onnx(*module, {.opset = opset}));
    EXPECT_EQ(model.of("DynamicQuantizeLinear").size(), 0U);
    EXPECT_EQ(single_inputs(model, "MatMulInteger").size(), 2U);
    const at::Tensor sums = module->named_buffers()["weight.int8"].sum({1}, false, torch::kInt);
    const std::vector<int32_t> stored = model.initializers.at("weight.int8.sums").as<int32_t>();
    ASSERT_EQ(stored.size(), 4U);
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(stored[static_cast<size_t>(c)], sums[c].item<int32_t>());
    EXPECT_EQ(model.of("ReduceMin").at(0).attributes.contains("axes"), opset < 18);
  }
}

TEST(ExportDynamic, RecurrentLayersAreRefusedByName) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 2).batch_first(true));
  lstm->eval();
  const auto forward = [&](const std::vector<at::Tensor>& inputs) -> c10::IValue {
    return std::get<0>(lstm->forward(inputs[0]));
  };
  const Module module = quant::quantize_dynamic(graph::capture(*lstm, forward, {torch::randn({2, 5, 3})}));
  EXPECT_ERROR(export_onnx(*module), "expected a recurrent layer in float");
}

}  // namespace ulp::test
