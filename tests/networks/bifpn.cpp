// EfficientDet: a pyramid that is joined from above and from below with weights that are learned, a swish
// whose backward pass is written by hand, heads that share convolutions but not their batch norms.
#include "networks.h"

namespace ulp::test::bifpn_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Keeps its input alone for the backward pass.
struct Swish : torch::autograd::Function<Swish> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return x * torch::sigmoid(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto x = ctx->get_saved_variables()[0];
    const auto s = torch::sigmoid(x);
    return {grads[0] * (s * (1 + x * (1 - s)))};
  }
};

Tensor swish(const Tensor& x) {
  return Swish::apply(x);
}

/// Borders so that a window of `kernel` with `stride` has ceil(size / stride) places.
Tensor pad_same(const Tensor& x, int64_t kernel, int64_t stride, double value = 0) {
  const auto extra = [&](int64_t size) {
    return std::max<int64_t>(
        (static_cast<int64_t>(std::ceil(static_cast<double>(size) / stride)) - 1) * stride - size + kernel,
        0);
  };
  const auto h = extra(x.size(2)), w = extra(x.size(3));
  return F::pad(x, F::PadFuncOptions({w / 2, w - w / 2, h / 2, h - h / 2}).value(value));
}

struct SeparableConvImpl : nn::Module {
  nn::Conv2d depthwise{nullptr}, pointwise{nullptr};
  SeparableConvImpl(int64_t in, int64_t out) {
    depthwise = register_module("depthwise", nn::Conv2d(nn::Conv2dOptions(in, in, 3).groups(in).bias(false)));
    pointwise = register_module("pointwise", nn::Conv2d(nn::Conv2dOptions(in, out, 1)));
  }
  Tensor forward(const Tensor& x) { return pointwise(depthwise(pad_same(x, 3, 1))); }
};
TORCH_MODULE(SeparableConv);

struct ConvBlockImpl : nn::Module {
  SeparableConv conv{nullptr};
  nn::BatchNorm2d bn{nullptr};
  explicit ConvBlockImpl(int64_t channels) {
    conv = register_module("conv", SeparableConv(channels, channels));
    bn = register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(channels).momentum(0.01).eps(1e-3)));
  }
  Tensor forward(const Tensor& x) { return bn(conv(x)); }
};
TORCH_MODULE(ConvBlock);

struct BiFpnImpl : nn::Module {
  Tensor p4_w1, p3_w1, p4_w2, p5_w2;
  ConvBlock conv4_up{nullptr}, conv3_up{nullptr}, conv4_down{nullptr}, conv5_down{nullptr};
  nn::Upsample up =
      nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));

  explicit BiFpnImpl(int64_t channels) {
    p4_w1 = register_parameter("p4_w1", torch::ones({2}));
    p3_w1 = register_parameter("p3_w1", torch::tensor({1.f, 0.5f}));
    p4_w2 = register_parameter("p4_w2", torch::tensor({1.f, 0.7f, 1.2f}));
    p5_w2 = register_parameter("p5_w2", torch::ones({2}));
    conv4_up = register_module("conv4_up", ConvBlock(channels));
    conv3_up = register_module("conv3_up", ConvBlock(channels));
    conv4_down = register_module("conv4_down", ConvBlock(channels));
    conv5_down = register_module("conv5_down", ConvBlock(channels));
  }
  static Tensor shares(const Tensor& w) {
    const auto positive = torch::relu(w);
    return positive / (torch::sum(positive, 0) + 1e-4);
  }
  static Tensor down(const Tensor& x) {
    return F::max_pool2d(pad_same(x, 3, 2), F::MaxPool2dFuncOptions(3).stride(2));
  }
  std::vector<Tensor> forward(const std::vector<Tensor>& p) {
    auto w = shares(p4_w1);
    const auto p4_up = conv4_up(swish(w[0] * p[1] + w[1] * up(p[2])));
    w = shares(p3_w1);
    const auto p3 = conv3_up(swish(w[0] * p[0] + w[1] * up(p4_up)));
    w = shares(p4_w2);
    const auto p4 = conv4_down(swish(w[0] * p[1] + w[1] * p4_up + w[2] * down(p3)));
    w = shares(p5_w2);
    return {p3, p4, conv5_down(swish(w[0] * p[2] + w[1] * down(p4)))};
  }
};
TORCH_MODULE(BiFpn);

struct HeadImpl : nn::Module {
  nn::ModuleList convs, norms;
  SeparableConv header{nullptr};
  int64_t numbers;
  HeadImpl(int64_t channels, int64_t layers, int64_t anchors, int64_t per_anchor) : numbers(per_anchor) {
    for (int64_t i = 0; i < layers; ++i) convs->push_back(SeparableConv(channels, channels));
    for (int64_t level = 0; level < 3; ++level) {
      nn::ModuleList of_level;
      for (int64_t i = 0; i < layers; ++i) of_level->push_back(nn::BatchNorm2d(channels));
      norms->push_back(of_level);
    }
    register_module("convs", convs);
    register_module("norms", norms);
    header = register_module("header", SeparableConv(channels, anchors * numbers));
  }
  Tensor forward(const std::vector<Tensor>& maps) {
    std::vector<Tensor> levels;
    for (size_t level = 0; level < maps.size(); ++level) {
      auto x = maps[level];
      for (size_t i = 0; i < convs->size(); ++i) {
        x = convs[i]->as<SeparableConv>()->forward(x);
        x = norms[level]->as<nn::ModuleList>()->at<nn::BatchNorm2dImpl>(i).forward(x);
        x = swish(x);
      }
      levels.push_back(header(x).permute({0, 2, 3, 1}).contiguous().view({x.size(0), -1, numbers}));
    }
    return torch::cat(levels, 1);
  }
};
TORCH_MODULE(Head);

struct EfficientDetImpl : nn::Module {
  nn::ModuleList trunk, cells;
  Head regressor{nullptr}, classifier{nullptr};
  explicit EfficientDetImpl(int64_t width) {
    for (int i = 0; i < 3; ++i)
      trunk->push_back(nn::Conv2d(nn::Conv2dOptions(i == 0 ? 3 : width, width, 3).stride(2).padding(1)));
    register_module("trunk", trunk);
    for (int i = 0; i < 2; ++i) cells->push_back(BiFpn(width));
    register_module("cells", cells);
    regressor = register_module("regressor", Head(width, 1, 2, 4));
    classifier = register_module("classifier", Head(width, 1, 2, 3));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& images) {
    std::vector<Tensor> maps;
    for (const auto& layer : *trunk)
      maps.push_back(swish(layer->as<nn::Conv2d>()->forward(maps.empty() ? images : maps.back())));
    for (size_t i = 0; i < cells->size(); ++i) maps = cells->at<BiFpnImpl>(i).forward(maps);
    return {regressor(maps), torch::sigmoid(classifier(maps))};
  }
};
TORCH_MODULE(EfficientDet);

}  // namespace
}  // namespace ulp::test::bifpn_net

ulp::test::Network ulp::test::bifpn() {
  // The graph has LibTorch's own gradient of the swish.
  return {"bifpn", [] { return instance(bifpn_net::EfficientDet(12).ptr()); }, normal({{3, 32, 32}}), 1e-3};
}
