// A model as its owner wrote it: modules and branches of one's own, and nothing of ulp. It classifies 28x28 images.
#pragma once

#include <torch/torch.h>

struct GatedBlock : torch::nn::Module {
  explicit GatedBlock(int64_t channels)
      : conv(register_module("conv",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(channels))),
        gate(register_module("gate", torch::nn::Linear(channels, channels))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor open = torch::sigmoid(gate(x.mean({2, 3}))).unsqueeze(-1).unsqueeze(-1);
    return torch::relu(norm(conv(x)) * open + x);
  }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear gate;
};

struct OwnNet : torch::nn::Module {
  OwnNet() {
    register_module("stem", stem);
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }

  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = torch::relu(stem(images));
    x = second->forward(torch::max_pool2d(first->forward(x), 2));
    return head(x.mean({2, 3}));
  }

  torch::nn::Conv2d stem{torch::nn::Conv2dOptions(1, 16, 3).stride(2).padding(1)};
  std::shared_ptr<GatedBlock> first = std::make_shared<GatedBlock>(16),
                              second = std::make_shared<GatedBlock>(16);
  torch::nn::Linear head{16, 10};
};
