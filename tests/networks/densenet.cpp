// DenseNet: every layer reads all features before it, concatenated.
#include "networks.h"

namespace ulp::test::densenet_net {
namespace {

using torch::Tensor;
using namespace torch::nn;

struct DenseLayerImpl : Module {
  BatchNorm2d norm1{nullptr}, norm2{nullptr};
  Conv2d conv1{nullptr}, conv2{nullptr};
  double drop_rate;

  DenseLayerImpl(int64_t in, int64_t growth, int64_t bn_size, double drop)
      : norm1(in),
        norm2(bn_size * growth),
        conv1(Conv2dOptions(in, bn_size * growth, 1).bias(false)),
        conv2(Conv2dOptions(bn_size * growth, growth, 3).padding(1).bias(false)),
        drop_rate(drop) {
    register_module("norm1", norm1);
    register_module("conv1", conv1);
    register_module("norm2", norm2);
    register_module("conv2", conv2);
  }
  Tensor forward(const std::vector<Tensor>& before) {
    Tensor x = conv1(norm1(torch::cat(before, 1)).relu_());
    x = conv2(norm2(x).relu_());
    if (drop_rate > 0)
      x = functional::dropout(x, functional::DropoutFuncOptions().p(drop_rate).training(is_training()));
    return x;
  }
};
TORCH_MODULE(DenseLayer);

struct DenseBlockImpl : Module {
  std::vector<DenseLayer> layers;

  DenseBlockImpl(int64_t count, int64_t in, int64_t growth) {
    for (int64_t i = 0; i < count; ++i)
      layers.push_back(
          register_module("denselayer" + std::to_string(i + 1), DenseLayer(in + i * growth, growth, 2, 0.1)));
  }
  Tensor forward(const Tensor& x) {
    std::vector<Tensor> features{x};
    for (auto& layer : layers) features.push_back(layer->forward(features));
    return torch::cat(features, 1);
  }
};
TORCH_MODULE(DenseBlock);

struct StackSequentialImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  Tensor forward(Tensor x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(StackSequential);

StackSequential transition(int64_t in, int64_t out) {
  return StackSequential(BatchNorm2d(in), ReLU(ReLUOptions(true)),
                         Conv2d(Conv2dOptions(in, out, 1).bias(false)),
                         AvgPool2d(AvgPool2dOptions(2).stride(2)));
}

struct DenseNetImpl : Module {
  Sequential features;
  Linear classifier{nullptr};

  explicit DenseNetImpl(int64_t classes) {
    features->push_back("conv0", Conv2d(Conv2dOptions(3, 12, 5).stride(2).padding(2).bias(false)));
    features->push_back("norm0", BatchNorm2d(12));
    features->push_back("relu0", ReLU(ReLUOptions(true)));
    features->push_back("pool0", MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1)));
    features->push_back("denseblock1", DenseBlock(3, 12, 6));
    features->push_back("transition1", transition(30, 15));
    features->push_back("denseblock2", DenseBlock(3, 15, 6));
    features->push_back("norm5", BatchNorm2d(33));
    register_module("features", features);
    classifier = register_module("classifier", Linear(33, classes));
  }
  Tensor forward(const Tensor& x) {
    Tensor out = features->forward(x).relu_();
    out = torch::adaptive_avg_pool2d(out, {1, 1});
    return classifier(torch::flatten(out, 1));
  }
};
TORCH_MODULE(DenseNet);

}  // namespace
}  // namespace ulp::test::densenet_net

ulp::test::Network ulp::test::densenet() {
  return {"densenet", [] { return instance(densenet_net::DenseNet(10).ptr()); }, normal({{3, 32, 32}})};
}
