// Quantized graphs as QuantizeLinear and DequantizeLinear.
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "onnx_reader.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

constexpr int64_t kUint8 = 2, kInt8 = 3, kInt32 = 6;

std::shared_ptr<quant::PreparedModule> onnx_prepared(const std::string& name, const quant::Recipe& recipe) {
  torch::manual_seed(1);
  const auto model = models::make_model(name, {.in_channels = 1, .image_size = 28});
  model->eval();
  const torch::Tensor images = torch::randn({4, 1, 28, 28});
  const auto prepared = quant::prepare(capture(*model, {images}), recipe);
  prepared->forward(images);
  return prepared;
}

ReadModel onnx_quantized(const std::string& name, const quant::Recipe& recipe) {
  return read_onnx(exchange::export_onnx(*quant::convert(onnx_prepared(name, recipe))));
}

/// Activations: one u8 zero point for each scale.
void expect_activation(const ReadModel& model, const ReadNode& node) {
  const ReadTensor& zero = model.initializers.at(node.inputs.at(2));
  EXPECT_EQ(zero.type, kUint8) << node.name;
  EXPECT_TRUE(zero.dims.empty()) << node.name;
  EXPECT_TRUE(model.initializers.at(node.inputs[1]).dims.empty()) << node.name;
}

void expect_layer(const ReadModel& model, const ReadNode& layer) {
  for (const std::string& input : layer.inputs) {
    const ReadNode* made = model.maker(input);
    ASSERT_NE(made, nullptr) << layer.name;
    EXPECT_EQ(made->op, "DequantizeLinear") << layer.name;
  }
  const ReadNode& weight = *model.maker(layer.inputs[1]);
  const ReadTensor& codes = model.initializers.at(weight.inputs[0]);
  EXPECT_EQ(codes.type, kInt8);
  EXPECT_EQ(weight.attributes.at("axis").i, 0);
  EXPECT_EQ(model.initializers.at(weight.inputs[1]).dims, (std::vector<int64_t>{codes.dims[0]}));
  for (const char zero : model.initializers.at(weight.inputs.at(2)).raw) EXPECT_EQ(zero, 0);
  const ReadNode& bias = *model.maker(layer.inputs.at(2));
  EXPECT_EQ(model.initializers.at(bias.inputs[0]).type, kInt32);
  EXPECT_EQ(bias.inputs.size(), 2);
}

}  // namespace

TEST(ExportQuantized, WritesQdqAroundEachLayer) {
  const ReadModel model = onnx_quantized("lenet5", quant::Recipe::x86_int8());
  ASSERT_EQ(model.of("Conv").size(), 2);
  ASSERT_EQ(model.of("Gemm").size(), 3);
  for (const char* op : {"Conv", "Gemm"}) {
    for (const ReadNode& layer : model.of(op)) expect_layer(model, layer);
  }
  EXPECT_GE(model.of("QuantizeLinear").size(), 5);
  for (const ReadNode& node : model.of("QuantizeLinear")) expect_activation(model, node);
  EXPECT_TRUE(model.initializers.contains("conv1.weight.int8"));
}

TEST(ExportQuantized, AveragesStandBetweenDequantizeAndQuantize) {
  const ReadModel model = onnx_quantized("resnet8", quant::Recipe::x86_int8());
  const ReadNode pool = model.of("GlobalAveragePool").at(0);
  EXPECT_EQ(model.maker(pool.inputs[0])->op, "DequantizeLinear");
  bool quantized = false;
  for (const ReadNode& node : model.of("QuantizeLinear")) quantized |= node.inputs[0] == pool.outputs[0];
  EXPECT_TRUE(quantized);
}

TEST(ExportQuantized, LayersBeforeSumsHaveCodesOfTheirOwn) {
  const ReadModel model = onnx_quantized("resnet8", quant::Recipe::onnx_qdq());
  ASSERT_FALSE(model.of("Add").empty());
  for (const ReadNode& add : model.of("Add")) {
    for (const std::string& operand : add.inputs)
      EXPECT_EQ(model.maker(operand)->op, "DequantizeLinear") << add.name;
  }
}

TEST(ExportQuantized, SignedActivationsBecomeUnsignedOnes) {
  const auto prepared = onnx_prepared("lenet5", quant::Recipe::profile("tflite_int8"));
  const auto converted = quant::convert(prepared);
  const ReadModel model = read_onnx(exchange::export_onnx(*converted));
  size_t checked = 0;
  for (const ReadNode& node : model.of("QuantizeLinear")) {
    expect_activation(model, node);
    const std::string name = node.inputs[2].substr(0, node.inputs[2].rfind(".onnx"));
    const graph::Attribute* stored = converted->graph().find_attribute(name);
    ASSERT_NE(stored, nullptr) << name;
    EXPECT_EQ(static_cast<uint8_t>(model.initializers.at(node.inputs[2]).raw.at(0)),
              stored->tensor.item<int64_t>() + 128);
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

/// Averages that LiteRT rounds otherwise than QuantizeLinear are refused: those of even divisors.
TEST(ExportQuantized, AveragesThatRoundOtherwiseAreRefused) {
  struct Pool {
    std::vector<int64_t> kernel, padding;
    bool ceil_mode, counts_padding, ties;
  };
  torch::manual_seed(4);
  const torch::Tensor x = torch::randn({2, 3, 10, 10});
  for (const Pool& pool :
       {Pool{{2, 2}, {0, 0}, false, true, true}, Pool{{3, 3}, {0, 0}, false, true, false},
        Pool{{3, 1}, {0, 0}, false, true, false}, Pool{{1, 4}, {0, 0}, false, true, true},
        Pool{{3, 3}, {1, 1}, false, true, false}, Pool{{3, 3}, {1, 1}, false, false, true},
        Pool{{3, 3}, {0, 0}, true, true, true}, Pool{{5, 3}, {2, 0}, false, true, false}}) {
    SCOPED_TRACE(testing::Message() << pool.kernel[0] << 'x' << pool.kernel[1] << ' ' << pool.padding[0]);
    auto net = std::make_shared<FunctionNet>();
    auto first = net->register_module("first", torch::nn::Conv2d(3, 3, 1)),
         last = net->register_module("last", torch::nn::Conv2d(3, 2, 1));
    net->body = [=](const torch::Tensor& v) mutable {
      return last->forward(torch::avg_pool2d(first->forward(v), pool.kernel, {2, 2}, pool.padding,
                                             pool.ceil_mode, pool.counts_padding));
    };
    for (const bool as_litert : {false, true}) {
      const auto prepared = quant::prepare(
          captured_net(net, x), as_litert ? quant::Recipe::tflite_int8() : quant::Recipe::onnx_qdq());
      prepared->forward(x);
      const auto converted = quant::convert(prepared);
      if (as_litert && pool.ties)
        EXPECT_ERROR(exchange::export_onnx(*converted), "to even, as QuantizeLinear does");
      else
        EXPECT_EQ(read_onnx(exchange::export_onnx(*converted)).of("AveragePool").size(), 1U);
    }
  }
}

TEST(ExportQuantized, ObserversAreRefused) {
  const auto prepared = onnx_prepared("lenet5", quant::Recipe::x86_int8());
  EXPECT_ERROR(exchange::export_onnx(*prepared), "quant::convert comes first");
}

TEST(ExportQuantized, TransposedConvolutionsAreConvolutionsWhoseChannelsBecomePixels) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  using Options = torch::nn::ConvTranspose2dOptions;
  torch::nn::Sequential net{torch::nn::ConvTranspose2d(Options(2, 3, 2).stride(2)), torch::nn::ReLU(),
                            torch::nn::ConvTranspose2d(Options(3, 4, 3).stride(2).padding(1)),
                            torch::nn::ReLU(),
                            torch::nn::ConvTranspose2d(Options(4, 2, {2, 3}).stride({2, 1}).padding({0, 1}))};
  net->eval();
  const torch::Tensor images = torch::randn({4, 2, 5, 6});
  const auto prepared = quant::prepare(capture(net, {images}), quant::Recipe::onnx_qdq());
  prepared->forward(images);
  const auto converted = quant::convert(prepared);
  const std::string bytes = exchange::export_onnx(*converted);
  const ReadModel model = read_onnx(bytes);
  EXPECT_EQ(model.of("ConvTranspose").size(), 0U);
  EXPECT_EQ(model.of("Conv").size(), 3U);
  ASSERT_EQ(model.of("DepthToSpace").size(), 2U) << "a window that is no square is spelled out";
  EXPECT_EQ(model.of("DepthToSpace")[0].attributes.at("mode").s, "DCR");
  EXPECT_EQ(model.of("Slice").size(), 1U) << "2 x 9 - 1 rows";
  const torch::Tensor ours = converted->forward(images);
  EXPECT_TRUE(torch::equal(exchange::import_onnx(bytes, "model.onnx")->forward(images), ours));
}

}  // namespace ulp::test
