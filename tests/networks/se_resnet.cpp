// A residual network whose blocks weigh their channels (squeeze and excitation).
#include "networks.h"

namespace ulp::test::se_resnet_net {
namespace {

using namespace torch;

class SELayerImpl : public nn::Module {
 public:
  explicit SELayerImpl(int64_t channel, int64_t reduction = 4)
      : avg_pool(nn::AdaptiveAvgPool2dOptions(1)),
        fc(nn::Linear(nn::LinearOptions(channel, channel / reduction).bias(false)),
           nn::ReLU(nn::ReLUOptions(true)),
           nn::Linear(nn::LinearOptions(channel / reduction, channel).bias(false)), nn::Sigmoid()) {
    register_module("avg_pool", avg_pool);
    register_module("fc", fc);
  }
  Tensor forward(Tensor x) {
    const auto b = x.size(0), c = x.size(1);
    Tensor y = avg_pool(x).view({b, c});
    y = fc->forward(y).view({b, c, 1, 1});
    return x * y.expand_as(x);
  }

 private:
  nn::AdaptiveAvgPool2d avg_pool;
  nn::Sequential fc;
};
TORCH_MODULE(SELayer);

class BasicBlockImpl : public nn::Module {
 public:
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)),
        conv2(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)),
        bn1(out),
        bn2(out),
        se(out) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    register_module("se", se);
    if (stride == 1 && in == out) return;
    downsample->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)));
    downsample->push_back(nn::BatchNorm2d(out));
    register_module("downsample", downsample);
  }
  Tensor forward(Tensor x) {
    Tensor residual = x;
    Tensor out = conv1->forward(x);
    out = bn1->forward(out);
    out.relu_();
    out = se->forward(bn2->forward(conv2->forward(out)));
    if (!downsample->is_empty()) residual = downsample->forward(x);
    out += residual;
    return out.relu_();
  }

 private:
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d bn1, bn2;
  SELayer se;
  nn::Sequential downsample;
};
TORCH_MODULE(BasicBlock);

class SEResNetImpl : public nn::Module {
 public:
  explicit SEResNetImpl(int64_t classes) : fc(24, classes) {
    stem = register_module(
        "stem", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 7).stride(2).padding(3).bias(false)),
                               nn::BatchNorm2d(8), nn::Functional(torch::relu),
                               nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1))));
    layers = register_module(
        "layers", nn::Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 24, 2)));
    register_module("fc", fc);
  }
  Tensor forward(Tensor x) {
    x = layers->forward(stem->forward(x));
    x = adaptive_avg_pool2d(x, {1, 1});
    x = x.view({x.size(0), -1});
    return fc(x);
  }

 private:
  nn::Sequential stem, layers;
  nn::Linear fc;
};
TORCH_MODULE(SEResNet);

}  // namespace
}  // namespace ulp::test::se_resnet_net

ulp::test::Network ulp::test::se_resnet() {
  return {"se_resnet", [] { return instance(se_resnet_net::SEResNet(10).ptr()); }, normal({{3, 32, 32}})};
}
