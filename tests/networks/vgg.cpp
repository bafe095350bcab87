// A plain stack of convolutions, built from a list of widths.
#include "networks.h"

namespace ulp::test::vgg_net {
namespace {

namespace nn = torch::nn;

struct VggImpl : nn::Module {
  nn::Sequential features, classifier;

  VggImpl(const std::vector<int64_t>& widths, int64_t classes) {
    int64_t channels = 3;
    for (const int64_t width : widths) {
      if (width == 0) {
        features->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(2)));
        continue;
      }
      features->push_back(nn::Conv2d(nn::Conv2dOptions(channels, width, 3).padding(1)));
      features->push_back(nn::BatchNorm2d(width));
      features->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
      channels = width;
    }
    classifier = nn::Sequential(nn::Linear(channels * 16, 48), nn::ReLU(nn::ReLUOptions().inplace(true)),
                                nn::Dropout(), nn::Linear(48, classes));
    register_module("features", features);
    register_module("classifier", classifier);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = features->forward(x);
    x = x.view({x.size(0), -1});
    return classifier->forward(x);
  }
};
TORCH_MODULE(Vgg);

}  // namespace
}  // namespace ulp::test::vgg_net

ulp::test::Network ulp::test::vgg() {
  const auto make = [] {
    return instance(vgg_net::Vgg(std::vector<int64_t>{8, 0, 16, 0, 24, 24, 0}, 10).ptr());
  };
  return {"vgg", make, normal({{3, 32, 32}})};
}
