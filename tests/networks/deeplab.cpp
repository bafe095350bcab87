// DeepLabV3+: a trunk that is dilated at its end, pooling in a pyramid of rates, a decoder that reads an
// early map, and in train mode a second result by name.
#include "networks.h"

namespace ulp::test::deeplab_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::Sequential conv_bn(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t dilation = 1) {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                                       .stride(stride)
                                       .padding(kernel / 2 * dilation)
                                       .dilation(dilation)
                                       .bias(false)),
                        nn::BatchNorm2d(out), nn::ReLU(nn::ReLUOptions(true)));
}

Tensor resized(const Tensor& x, at::IntArrayRef size) {
  return F::interpolate(
      x, F::InterpolateFuncOptions().size(size.vec()).mode(torch::kBilinear).align_corners(false));
}

struct AsppImpl : nn::Module {
  nn::ModuleList convs;
  nn::Sequential pooling, project;
  AsppImpl(int64_t in, int64_t out, const std::vector<int64_t>& rates) {
    convs->push_back(conv_bn(in, out, 1));
    for (const auto rate : rates) convs->push_back(conv_bn(in, out, 3, 1, rate));
    register_module("convs", convs);
    pooling = register_module("pooling",
                              nn::Sequential(nn::AdaptiveAvgPool2d(1), nn::Conv2d(in, out, 1), nn::ReLU()));
    project = conv_bn(static_cast<int64_t>(convs->size() + 1) * out, out, 1);
    project->push_back(nn::Dropout2d(0.1));
    register_module("project", project);
  }
  Tensor forward(const Tensor& x) {
    std::vector<Tensor> res;
    for (const auto& conv : *convs) res.push_back(conv->as<nn::Sequential>()->forward(x));
    res.push_back(resized(pooling->forward(x), x.sizes().slice(2)));
    return project->forward(torch::cat(res, 1));
  }
};
TORCH_MODULE(Aspp);

struct DeepLabImpl : nn::Module {
  nn::Sequential low, high, reduce, classifier, auxiliary;
  Aspp aspp{nullptr};

  explicit DeepLabImpl(int64_t classes) {
    low = conv_bn(3, 8, 3, 2);
    low->extend(*conv_bn(8, 12, 3, 2));
    high = conv_bn(12, 16, 3, 2);
    high->extend(*conv_bn(16, 16, 3, 1, 2));
    aspp = Aspp(16, 12, std::vector<int64_t>{1, 2, 3});
    reduce = conv_bn(12, 6, 1);
    classifier = conv_bn(18, 12, 3);
    classifier->push_back("logits", nn::Conv2d(12, classes, 1));
    auxiliary = conv_bn(16, 8, 3);
    auxiliary->push_back("logits", nn::Conv2d(8, classes, 1));
    register_module("low", low);
    register_module("high", high);
    register_module("aspp", aspp);
    register_module("reduce", reduce);
    register_module("classifier", classifier);
    register_module("auxiliary", auxiliary);
    for (auto& module : modules(/*include_self=*/false)) {
      if (auto conv = std::dynamic_pointer_cast<nn::Conv2dImpl>(module))
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
  std::map<std::string, Tensor> forward(const Tensor& x) {
    const auto input_shape = x.sizes().slice(2);
    const auto early = low->forward(x), late = high->forward(early);
    const auto wide = resized(aspp(late), early.sizes().slice(2));
    std::map<std::string, Tensor> result;
    const auto logits = classifier->forward(torch::cat({reduce->forward(early), wide}, 1));
    result["out"] = resized(logits, input_shape);
    if (is_training()) result["aux"] = resized(auxiliary->forward(late), input_shape);
    return result;
  }
};
TORCH_MODULE(DeepLab);

}  // namespace
}  // namespace ulp::test::deeplab_net

ulp::test::Network ulp::test::deeplab() {
  return {"deeplab", [] { return instance(deeplab_net::DeepLab(5).ptr()); }, normal({{3, 32, 32}})};
}
