// ConvNeXt: depthwise convolutions, layer norm over channels in both layouts, layer scale, stochastic depth.
#include "networks.h"

namespace ulp::test::convnext_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

Tensor drop_path(const Tensor& x, double p, bool training) {
  if (p == 0.0 || !training) return x;
  const double keep = 1 - p;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  Tensor mask = torch::empty(shape, x.options()).bernoulli_(keep);
  return x * mask.div_(keep);
}

struct LayerNorm2dImpl : nn::Module {
  Tensor weight, bias;
  double eps = 1e-6;

  explicit LayerNorm2dImpl(int64_t channels) {
    weight = register_parameter("weight", torch::ones(channels));
    bias = register_parameter("bias", torch::zeros(channels));
  }
  Tensor forward(Tensor x) {
    using namespace torch::indexing;
    auto u = x.mean(1, true);
    auto s = (x - u).pow(2).mean(1, true);
    x = (x - u) / torch::sqrt(s + eps);
    return weight.index({Slice(), None, None}) * x + bias.index({Slice(), None, None});
  }
};
TORCH_MODULE(LayerNorm2d);

struct BlockImpl : nn::Module {
  nn::Conv2d dwconv{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear pwconv1{nullptr}, pwconv2{nullptr};
  Tensor gamma;
  double drop;

  BlockImpl(int64_t dim, double drop_rate) : drop(drop_rate) {
    dwconv = register_module("dwconv", nn::Conv2d(nn::Conv2dOptions(dim, dim, 7).padding(3).groups(dim)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({dim}).eps(1e-6)));
    pwconv1 = register_module("pwconv1", nn::Linear(dim, 4 * dim));
    pwconv2 = register_module("pwconv2", nn::Linear(4 * dim, dim));
    gamma = register_parameter("gamma", 0.5 * torch::ones({dim}));
  }
  Tensor forward(Tensor x) {
    const Tensor input = x;
    x = dwconv(x);
    x = x.permute({0, 2, 3, 1});
    x = pwconv2(torch::gelu(pwconv1(norm(x))));
    x = gamma * x;
    x = x.permute({0, 3, 1, 2});
    return input + drop_path(x, drop, is_training());
  }
};
TORCH_MODULE(Block);

struct ConvNextImpl : nn::Module {
  nn::Sequential stem, stage1, down, stage2;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};

  explicit ConvNextImpl(int64_t classes) {
    stem = register_module(
        "stem", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 12, 4).stride(4)), LayerNorm2d(12)));
    stage1 = register_module("stage1", nn::Sequential(Block(12, 0.0), Block(12, 0.1)));
    down = register_module(
        "down", nn::Sequential(LayerNorm2d(12), nn::Conv2d(nn::Conv2dOptions(12, 24, 2).stride(2))));
    stage2 = register_module("stage2", nn::Sequential(Block(24, 0.1), Block(24, 0.2)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({24}).eps(1e-6)));
    head = register_module("head", nn::Linear(24, classes));
  }
  Tensor forward(Tensor x) {
    x = stage1->forward(stem->forward(x));
    x = stage2->forward(down->forward(x));
    x = norm(x.mean({-2, -1}));
    return head(x);
  }
};
TORCH_MODULE(ConvNext);

}  // namespace
}  // namespace ulp::test::convnext_net

ulp::test::Network ulp::test::convnext() {
  return {"convnext", [] { return instance(convnext_net::ConvNext(10).ptr()); }, normal({{3, 32, 32}})};
}
