// MobileNetV3: hardswish, gates by hardsigmoid, everything in place, the dropout too.
#include "networks.h"

namespace ulp::test::mobilenet_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct HardSwishImpl : nn::Module {
  Tensor forward(Tensor x) { return torch::hardswish_(x); }
};
TORCH_MODULE(HardSwish);

struct GateImpl : nn::Module {
  nn::Conv2d reduce{nullptr}, expand{nullptr};

  explicit GateImpl(int64_t channels) {
    reduce = register_module("reduce", nn::Conv2d(nn::Conv2dOptions(channels, channels / 4, 1)));
    expand = register_module("expand", nn::Conv2d(nn::Conv2dOptions(channels / 4, channels, 1)));
  }
  Tensor forward(Tensor x) {
    auto w = torch::adaptive_avg_pool2d(x, {1, 1});
    w = reduce(w).relu_();
    w = expand(w);
    return x.mul_(torch::hardsigmoid_(w));
  }
};
TORCH_MODULE(Gate);

struct InvertedResidualImpl : nn::Module {
  nn::Sequential conv;
  bool identity;

  InvertedResidualImpl(int64_t in, int64_t hidden, int64_t out, int64_t kernel, int64_t stride, bool se,
                       bool hs)
      : identity(stride == 1 && in == out) {
    const auto activate = [&] {
      if (hs) conv->push_back(HardSwish());
      if (!hs) conv->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
    };
    conv->push_back(nn::Conv2d(nn::Conv2dOptions(in, hidden, 1).bias(false)));
    conv->push_back(nn::BatchNorm2d(hidden));
    activate();
    conv->push_back(nn::Conv2d(nn::Conv2dOptions(hidden, hidden, kernel)
                                   .stride(stride)
                                   .padding((kernel - 1) / 2)
                                   .groups(hidden)
                                   .bias(false)));
    conv->push_back(nn::BatchNorm2d(hidden));
    if (se) conv->push_back(Gate(hidden));
    activate();
    conv->push_back(nn::Conv2d(nn::Conv2dOptions(hidden, out, 1).bias(false)));
    conv->push_back(nn::BatchNorm2d(out));
    register_module("conv", conv);
  }
  Tensor forward(Tensor x) {
    if (identity) return x + conv->forward(x);
    return conv->forward(x);
  }
};
TORCH_MODULE(InvertedResidual);

struct MobileNetV3Impl : nn::Module {
  nn::Sequential features, classifier;

  explicit MobileNetV3Impl(int64_t classes) {
    features->push_back(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1).bias(false)));
    features->push_back(nn::BatchNorm2d(8));
    features->push_back(HardSwish());
    features->push_back(InvertedResidual(8, 16, 8, 3, 1, true, false));
    features->push_back(InvertedResidual(8, 32, 12, 3, 2, false, false));
    features->push_back(InvertedResidual(12, 48, 12, 5, 1, true, true));
    features->push_back(InvertedResidual(12, 48, 16, 5, 2, true, true));
    register_module("features", features);
    classifier =
        register_module("classifier", nn::Sequential(nn::Linear(16, 64), HardSwish(),
                                                     nn::Dropout(nn::DropoutOptions(0.2).inplace(true)),
                                                     nn::Linear(64, classes)));
  }
  Tensor forward(Tensor x) {
    x = features->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1}).view({x.size(0), -1});
    return classifier->forward(x);
  }
};
TORCH_MODULE(MobileNetV3);

}  // namespace
}  // namespace ulp::test::mobilenet_net

ulp::test::Network ulp::test::mobilenet_v3() {
  return {"mobilenet_v3", [] { return instance(mobilenet_net::MobileNetV3(10).ptr()); },
          normal({{3, 32, 32}})};
}
