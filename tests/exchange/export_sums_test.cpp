// Int8 layers whose sums can pass 2^31 are refused by every writer of codes, with the layer and the bound.
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
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

/// 127 * 255 * inputs and the bias.
constexpr int64_t kMostInputs = 66000;

}  // namespace

TEST(ExportSums, SumsThatFitAreWritten) {
  EXPECT_FALSE(exchange::export_onnx(*wide_layer(kMostInputs, quant::Recipe::onnx_qdq())).empty());
  EXPECT_FALSE(exchange::export_tflite(*wide_layer(kMostInputs, quant::Recipe::tflite_int8())).empty());
}

}  // namespace ulp::test
