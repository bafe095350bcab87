// A residual network for heart beats: one-dimensional convolutions, pooled to a fixed length in two ways.
#include "networks.h"

namespace ulp::test::ecg_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct ResidualImpl : nn::Module {
  nn::BatchNorm1d bn1{nullptr}, bn2{nullptr};
  nn::Conv1d conv1{nullptr}, conv2{nullptr}, shortcut{nullptr};
  nn::Dropout drop{0.2};

  ResidualImpl(int64_t in, int64_t out, int64_t stride) {
    bn1 = register_module("bn1", nn::BatchNorm1d(in));
    conv1 = register_module("conv1",
                            nn::Conv1d(nn::Conv1dOptions(in, out, 7).stride(stride).padding(3).bias(false)));
    bn2 = register_module("bn2", nn::BatchNorm1d(out));
    conv2 = register_module("conv2", nn::Conv1d(nn::Conv1dOptions(out, out, 7).padding(3).bias(false)));
    shortcut = register_module("shortcut", nn::Conv1d(nn::Conv1dOptions(in, out, 1)));
    register_module("drop", drop);
  }
  Tensor forward(Tensor x) {
    auto y = conv1(torch::relu(bn1(x)));
    y = conv2(drop(torch::relu(bn2(y))));
    if (y.size(2) != x.size(2)) x = torch::max_pool1d(x, /*kernel_size=*/2);
    return y + shortcut(x);
  }
};
TORCH_MODULE(Residual);

struct EcgNetImpl : nn::Module {
  nn::Conv1d stem{nullptr};
  nn::Sequential blocks;
  nn::AdaptiveAvgPool1d average{nullptr};
  nn::AdaptiveMaxPool1d largest{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};

  EcgNetImpl(int64_t leads, int64_t classes) {
    stem = register_module("stem", nn::Conv1d(nn::Conv1dOptions(leads, 8, 15).stride(2).padding(7)));
    blocks = register_module("blocks",
                             nn::Sequential(Residual(8, 12, 1), Residual(12, 16, 2), Residual(16, 16, 2)));
    average = register_module("average", nn::AdaptiveAvgPool1d(4));
    largest = register_module("largest", nn::AdaptiveMaxPool1d(1));
    fc1 = register_module("fc1", nn::Linear(80, 24));
    fc2 = register_module("fc2", nn::Linear(24, classes));
  }
  Tensor forward(Tensor x) {
    x = torch::relu(blocks->forward(stem(x)));
    x = torch::cat({average(x).flatten(1), largest(x).squeeze(-1)}, 1);
    return fc2(torch::leaky_relu(fc1(x), 0.01));
  }
};
TORCH_MODULE(EcgNet);

}  // namespace
}  // namespace ulp::test::ecg_net

ulp::test::Network ulp::test::ecg() {
  return {"ecg", [] { return instance(ecg_net::EcgNet(3, 5).ptr()); }, normal({{3, 120}})};
}
