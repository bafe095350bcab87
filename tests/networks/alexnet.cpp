// AlexNet as it was published, with local response normalisation and two groups, made small.
#include "networks.h"

namespace ulp::test::alexnet_net {
namespace {

using namespace torch::nn;

struct AlexNetImpl : Module {
  Sequential features, classifier;

  explicit AlexNetImpl(int64_t num_classes) {
    features = Sequential(
        Conv2d(Conv2dOptions(3, 12, 7).stride(2).padding(2)), ReLU(ReLUOptions().inplace(true)),
        LocalResponseNorm(LocalResponseNormOptions(5).alpha(1e-2).beta(0.75).k(2)),
        MaxPool2d(MaxPool2dOptions(3).stride(2)), Conv2d(Conv2dOptions(12, 16, 5).padding(2).groups(2)),
        ReLU(ReLUOptions().inplace(true)), LocalResponseNorm(LocalResponseNormOptions(5)),
        MaxPool2d(MaxPool2dOptions(3).stride(2)), Conv2d(Conv2dOptions(16, 24, 3).padding(1)),
        ReLU(ReLUOptions().inplace(true)), AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({2, 2})));
    classifier = Sequential(Dropout(0.5), Linear(24 * 2 * 2, 64), ReLU(ReLUOptions().inplace(true)),
                            Dropout(0.5), Linear(64, num_classes));
    register_module("features", features);
    register_module("classifier", classifier);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = features->forward(x);
    x = x.view({-1, 24 * 2 * 2});
    x = classifier->forward(x);
    return torch::log_softmax(x, 1);
  }
};
TORCH_MODULE(AlexNet);

}  // namespace
}  // namespace ulp::test::alexnet_net

ulp::test::Network ulp::test::alexnet() {
  return {"alexnet", [] { return instance(alexnet_net::AlexNet(10).ptr()); }, normal({{3, 36, 36}})};
}
