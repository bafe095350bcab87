// A small residual network with what quantization has to cope with, and data for it.
#pragma once

#include <torch/torch.h>

namespace ulp::quant::test {

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride) {
    conv1 = register_module(
        "conv1",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    bn1 = register_module("bn1", torch::nn::BatchNorm2d(out));
    conv2 = register_module("conv2",
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(out, out, 3).padding(1).bias(false)));
    bn2 = register_module("bn2", torch::nn::BatchNorm2d(out));
    if (in != out)
      down = register_module("down", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1).stride(stride)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = bn2(conv2(at::relu(bn1(conv1(x)))));
    return at::relu(y + (down.is_empty() ? x : down(x)));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, down{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    stem = register_module("stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    block1 = register_module("block1", Block(8, 8, 1));
    block2 = register_module("block2", Block(8, 16, 2));
    fc = register_module("fc", torch::nn::Linear(16, 10));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::max_pool2d(torch::nn::functional::relu6(stem(x)), {2, 2}, {2, 2});
    y = block2(block1(y));
    return fc(at::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }
  torch::nn::Conv2d stem{nullptr};
  Block block1{nullptr}, block2{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Net);

// A few steps in train mode, so that the statistics of the batch norms are not those of a fresh module.
inline Net make_net() {
  torch::manual_seed(7);
  Net net;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) net->forward(torch::randn({8, 3, 16, 16}) * 2 + 0.5);
  net->eval();
  return net;
}

inline at::Tensor data(uint64_t seed, int64_t batch) {
  torch::manual_seed(seed);
  return torch::randn({batch, 3, 16, 16}) * 2 + 0.5;
}

}  // namespace ulp::quant::test
