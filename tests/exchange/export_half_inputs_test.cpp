// Models in half precision whose layers stay float and read the input, and values whose sizes follow the
// batch by no polynomial.
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "onnx_reader.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"

namespace ulp::test {

namespace {

using exchange::export_onnx;
using Module = std::shared_ptr<graph::GraphModule>;
constexpr int64_t kFloat32 = 1, kFloat16 = 10;

/// What each value is, as far as Casts, stored tensors, inputs and like operands tell; fails where operands
/// of one node differ.
std::map<std::string, int64_t> value_types(const ReadModel& model) {
  std::map<std::string, int64_t> types;
  for (const ReadValue& input : model.inputs) types[input.name] = input.type;
  for (const auto& [name, tensor] : model.initializers) types[name] = tensor.type;
  for (const ReadNode& node : model.nodes) {
    int64_t type = 0;
    for (const std::string& input : node.inputs) {
      const auto found = types.find(input);
      if (found == types.end() || (found->second != kFloat32 && found->second != kFloat16)) continue;
      if (type == 0) type = found->second;
      EXPECT_EQ(type, found->second) << node.op << " '" << node.name << "' reads '" << input << "'";
    }
    if (node.op == "Cast") type = node.attributes.at("to").i;
    for (const std::string& output : node.outputs) types[output] = type;
  }
  for (const ReadValue& output : model.outputs) EXPECT_EQ(types[output.name], output.type) << output.name;
  return types;
}

void expect_alike(const Module& module, const at::Tensor& x) {
  const std::string bytes = export_onnx(*module, {.fp16 = true});
  value_types(read_onnx(bytes));
  const at::Tensor ours = module->forward(x), theirs = exchange::import_onnx(bytes, "model.onnx")->forward(x);
  EXPECT_LE(relative_difference(ours, theirs), 5e-3);
}

}  // namespace

TEST(ExportHalfInputs, LayersThatStayFloatReadTheInputItself) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({2, 5, 4});
  auto lstm_net = std::make_shared<FunctionNet>(), gru_net = std::make_shared<FunctionNet>(),
       norm_net = std::make_shared<FunctionNet>();
  auto lstm =
      lstm_net->register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(4, 3).batch_first(true)));
  auto behind = lstm_net->register_module("behind", torch::nn::Linear(3, 2));
  lstm_net->body = [=](const at::Tensor& one) mutable {
    return behind->forward(std::get<0>(lstm->forward(one)));
  };
  auto gru = gru_net->register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(4, 3).bidirectional(true)));
  gru_net->body = [=](const at::Tensor& one) mutable { return std::get<0>(gru->forward(one)); };
  auto norm = norm_net->register_module("norm", torch::nn::BatchNorm1d(5));
  norm_net->body = [=](const at::Tensor& one) mutable { return norm->forward(one) * one; };
  for (const auto& net : {lstm_net, gru_net, norm_net}) {
    const Module module = captured_net(net, x);
    expect_alike(module, x);
  }
  const ReadModel model = read_onnx(export_onnx(*captured_net(gru_net, x), {.fp16 = true}));
  EXPECT_EQ(model.of("GRU").at(0).inputs.at(0), model.inputs.at(0).name) << "not rounded on the way";
}

TEST(ExportHalfInputs, SlicesOfTheBatchAreHalves) {
  const torch::NoGradGuard no_grad;
  const Module module = captured_function(
      [](const at::Tensor& x) { return (x.slice(0, 0, 3) * 2).flatten(1) + 0.5; }, torch::randn({4, 3, 2}));
  for (const int64_t batch : {1, 3, 7}) expect_alike(module, torch::randn({batch, 3, 2}));
}

TEST(ExportHalfInputs, EverySecondSampleIsAHalf) {
  const torch::NoGradGuard no_grad;
  const Module module =
      captured_function([](const at::Tensor& x) { return (x.slice(0, 0, std::nullopt, 2) * 2).flatten(1); },
                        torch::randn({4, 3, 2}));
  for (const int64_t batch : {1, 2, 7}) expect_alike(module, torch::randn({batch, 3, 2}));
}

TEST(ExportHalfInputs, SizesThatFollowNothingHaveANameOfTheirOwn) {
  const Module module = captured_function(
      [](const at::Tensor& x) { return (x.slice(0, 0, 3) * 2).flatten(1); }, torch::randn({5, 3, 2}));
  const ReadModel model = read_onnx(export_onnx(*module));
  ASSERT_EQ(model.outputs.at(0).shape.size(), 2U);
  EXPECT_NE(model.outputs[0].shape[0], "batch");
  EXPECT_EQ(model.outputs[0].shape[1], "6");
}

}  // namespace ulp::test
