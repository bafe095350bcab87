// Keras networks as tf2onnx wrote them (tests/golden/tf2onnx, by bench/peers/keras_export.py): images come as [N, H, W, C], with
// Transposes around what computes on channels first.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_message.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/npy.h"

namespace ulp::test {

namespace {

constexpr const char* kNetworks[] = {"convolutions", "depthwise", "decoder", "recurrent"};

std::filesystem::path golden_keras(const std::string& name) {
  return std::filesystem::path(ULP_SOURCE_DIR) / "tests/golden/tf2onnx" / name;
}

}  // namespace

TEST(ImportTf2onnx, GivesTheNumbersOfOnnxRuntime) {
  // Of eight layers at most. The longest sums are those of convolutions of 3 x 3 over 12 channels.
  constexpr double kRoundings = 8 * 3 * 3 * 12;
  for (const std::string name : kNetworks) {
    const auto module = exchange::import_onnx(golden_keras(name + ".onnx"));
    const at::Tensor theirs = io::load_npy(golden_keras(name + ".y.npy"));
    const at::Tensor ours = module->forward(io::load_npy(golden_keras(name + ".x.npy")));
    ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
    EXPECT_LT(((ours - theirs).abs().max() / theirs.abs().max()).item<double>(), kRoundings * 0x1p-24)
        << name;
  }
}

TEST(ImportTf2onnx, TrainsAStep) {
  for (const std::string name : kNetworks) {
    const auto module = exchange::import_onnx(golden_keras(name + ".onnx"));
    module->train();
    const at::Tensor x = io::load_npy(golden_keras(name + ".x.npy"));
    const auto loss = [&] { return module->forward(x).square().mean(); };
    const at::Tensor before = loss();
    before.backward();
    const std::vector<at::Tensor> parameters = module->parameters();
    EXPECT_GE(parameters.size(), 4U) << name;
    const torch::NoGradGuard no_grad;
    double square = 0;
    for (const at::Tensor& one : parameters) {
      ASSERT_TRUE(one.grad().defined() && one.grad().isfinite().all().item<bool>()) << name;
      square += one.grad().square().sum().item<double>();
    }
    const double rate = 0.01 * before.item<double>() / square;
    for (const at::Tensor& one : parameters) at::Tensor(one).sub_(one.grad(), rate);
    // Along the gradient the loss falls by rate * |g|^2, here a hundredth of it.
    const double fallen = 1 - loss().item<double>() / before.item<double>();
    EXPECT_NEAR(fallen, 0.01, 0.004) << name;
  }
}

TEST(ImportTf2onnx, OtherActivationsOfRecurrentLayersAreRefused) {
  const auto with = [](const std::vector<std::string>& activations) {
    return OnnxText()
        .input("x", {3, -1, 2})
        .floats("w", {1, 4, 2}, std::vector<float>(8, 0.1F))
        .floats("r", {1, 4, 1}, std::vector<float>(4, 0.1F))
        .node("LSTM", {"x", "w", "r"}, {"y"}, {{"hidden_size", 1}}, activations)
        .output("y")
        .bytes();
  };
  const auto imported = [](const std::string& bytes) { return exchange::import_onnx(bytes, "model.onnx"); };
  const at::Tensor x = torch::ones({3, 2, 2});
  EXPECT_TRUE(
      torch::equal(imported(with({"Sigmoid", "Tanh", "Tanh"}))->forward(x), imported(with({}))->forward(x)));
  for (const auto& others : {std::vector<std::string>{"Sigmoid", "Relu", "Tanh"}, {"Sigmoid", "Tanh"}})
    EXPECT_ERROR(imported(with(others)), "the usual activations");
}

}  // namespace ulp::test
