// Int8 layers whose sums can pass 2^31 are refused by every writer of codes, with the layer and the bound; so
// are averages that the format rounds otherwise.
#include <torch/torch.h>

#include <limits>

#include "captured_function.h"
#include "error_of.h"
#include "onnx_case.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

/// A linear layer of so many inputs whose weights are all codes of 127, in static int8.
std::shared_ptr<graph::GraphModule> wide_layer(int64_t inputs, const quant::Recipe& recipe) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<FunctionNet>();
  auto layer = net->register_module("wide", torch::nn::Linear(inputs, 2));
  layer->weight.fill_(0.5);
  layer->bias.fill_(1);
  net->body = [=](const at::Tensor& x) mutable { return layer->forward(x); };
  const at::Tensor x = torch::ones({2, inputs});
  const auto prepared = quant::prepare(captured_net(net, x), recipe);
  prepared->forward(x);
  return quant::convert(prepared);
}

/// 255 times as many codes of 127 or 128 are below 2^31; those of 4,000 more are not.
constexpr int64_t kMostInputs = 64000, kTooMany = 4000;

}  // namespace

TEST(ExportSums, SumsThatPass32BitsAreRefused) {
  const auto onnx = wide_layer(kMostInputs + kTooMany, quant::Recipe::onnx_qdq());
  const std::string error = error_of([&] { exchange::export_onnx(*onnx); });
  EXPECT_SAYS(error,
              "[exchange.export_onnx] expected an int8 layer whose sums fit 32 bits, up to 2147483647");
  EXPECT_SAYS(error, "aten::linear");
  EXPECT_SAYS(error, "wide");
  EXPECT_SAYS(error, "channel 0 can reach 2");
  const auto tflite = wide_layer(kMostInputs + kTooMany, quant::Recipe::tflite_int8());
  EXPECT_ERROR(exchange::export_tflite(*tflite),
               "[exchange.export_tflite] expected an int8 layer whose sums fit 32 bits");
}

TEST(ExportSums, SumsThatFitAreWritten) {
  EXPECT_FALSE(exchange::export_onnx(*wide_layer(kMostInputs, quant::Recipe::onnx_qdq())).empty());
  EXPECT_FALSE(exchange::export_tflite(*wide_layer(kMostInputs, quant::Recipe::tflite_int8())).empty());
}

/// Drawn codes of one layer around the bound: 255 times the sum of their magnitudes, and the bias, of a
/// channel.
TEST(ExportSums, LayersOfRandomCodesAreRefusedAboveTheBoundAlone) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  constexpr int64_t kInputs = kMostInputs + kTooMany;
  int written = 0, refused = 0;
  for (const bool tflite : {false, true}) {
    const auto layer = wide_layer(kInputs, tflite ? quant::Recipe::tflite_int8() : quant::Recipe::onnx_qdq());
    at::Tensor codes, bias;
    for (const at::Tensor& tensor : layer->buffers()) {
      if (tensor.scalar_type() == at::kChar && tensor.numel() == 2 * kInputs) codes = tensor;
      if (tensor.scalar_type() == at::kInt && tensor.numel() == 2 && tensor.abs().max().item<int>() > 1000)
        bias = tensor;
    }
    ASSERT_TRUE(codes.defined() && bias.defined());
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Draw draw(seed);
      const double share = 0.91 + static_cast<double>(draw.between(0, 80)) / 1000;
      const at::Tensor sign = torch::rand(codes.sizes()).sub(0.5F).sign();
      codes.copy_(torch::where(torch::rand(codes.sizes()) < share, 127, draw.between(0, 126)) * sign);
      const at::Tensor sums = 255 * codes.to(at::kLong).abs().sum(1) + bias.to(at::kLong).abs();
      const int64_t largest = sums.max().item<int64_t>();
      const auto write = [&] {
        if (tflite) exchange::export_tflite(*layer);
        if (!tflite) exchange::export_onnx(*layer);
      };
      if (largest <= std::numeric_limits<int32_t>::max()) {
        EXPECT_NO_THROW(write()) << largest;
        ++written;
      } else {
        EXPECT_SAYS(error_of(write), "can reach " + std::to_string(largest));
        ++refused;
      }
    }
  }
  EXPECT_GE(written, 4);
  EXPECT_GE(refused, 4);
}

TEST(ExportSums, AveragesThatRoundOtherwiseThanTheFormatAreRefused) {
  OnnxCase file;
  file.input("x", {1, 2, 4, 4}).tensor("s", torch::tensor(0.1F)).tensor("z", torch::tensor(3, at::kChar));
  file.node("QuantizeLinear", {"x", "s", "z"}, {"q"}).node("DequantizeLinear", {"q", "s", "z"}, {"d"});
  file.node("AveragePool", {"d"}, {"a"}, {{"kernel_shape", std::vector<int64_t>{2, 2}}});
  file.node("QuantizeLinear", {"a", "s", "z"}, {"aq"}).node("DequantizeLinear", {"aq", "s", "z"}, {"y"});
  const auto module = file.output("y").import();
  EXPECT_ERROR(exchange::export_tflite(*module),
               "expected an average that rounds what lies in the middle of two codes away from code 0");
}

}  // namespace ulp::test
