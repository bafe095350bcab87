// EfficientNet: inverted bottlenecks with squeeze-excitation, silu and stochastic depth of whole rows.
#include "networks.h"

namespace ulp::test::efficientnet_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct SqueezeExcitationImpl : nn::Module {
  nn::Conv2d fc1{nullptr}, fc2{nullptr};

  SqueezeExcitationImpl(int64_t channels, int64_t squeezed) {
    fc1 = register_module("fc1", nn::Conv2d(nn::Conv2dOptions(channels, squeezed, 1)));
    fc2 = register_module("fc2", nn::Conv2d(nn::Conv2dOptions(squeezed, channels, 1)));
  }
  Tensor forward(const Tensor& x) {
    Tensor scale = F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions(1));
    scale = F::silu(fc1(scale));
    return x * torch::sigmoid(fc2(scale));
  }
};
TORCH_MODULE(SqueezeExcitation);

struct StackSequentialImpl : nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  Tensor forward(Tensor x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(StackSequential);

StackSequential conv_norm(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups, bool act) {
  StackSequential layers(nn::Conv2d(nn::Conv2dOptions(in, out, kernel)
                                        .stride(stride)
                                        .padding((kernel - 1) / 2)
                                        .groups(groups)
                                        .bias(false)),
                         nn::BatchNorm2d(out));
  if (act) layers->push_back(nn::SiLU());
  return layers;
}

struct MBConvImpl : nn::Module {
  nn::Sequential block;
  bool residual;
  double survival;

  MBConvImpl(int64_t in, int64_t out, int64_t expand, int64_t kernel, int64_t stride, double survival_rate)
      : residual(in == out && stride == 1), survival(survival_rate) {
    const int64_t wide = in * expand;
    if (expand != 1) block->push_back(conv_norm(in, wide, 1, 1, 1, true));
    block->push_back(conv_norm(wide, wide, kernel, stride, wide, true));
    block->push_back(SqueezeExcitation(wide, std::max<int64_t>(1, in / 4)));
    block->push_back(conv_norm(wide, out, 1, 1, 1, false));
    register_module("block", block);
  }
  Tensor forward(const Tensor& input) {
    Tensor result = block->forward(input);
    if (!residual) return result;
    if (is_training() && survival < 1.0) {
      Tensor noise = torch::rand({input.size(0), 1, 1, 1}, input.options());
      noise = torch::floor(noise + survival);
      result = result / survival * noise;
    }
    return result + input;
  }
};
TORCH_MODULE(MBConv);

struct EfficientNetImpl : nn::Module {
  nn::Sequential features, classifier;

  explicit EfficientNetImpl(int64_t classes) {
    features->push_back("stem", conv_norm(3, 8, 3, 2, 1, true));
    features->push_back("stage1", MBConv(8, 8, 1, 3, 1, 1.0));
    features->push_back("stage2", MBConv(8, 12, 4, 3, 2, 0.95));
    features->push_back("stage3", MBConv(12, 12, 4, 3, 1, 0.9));
    features->push_back("stage4", MBConv(12, 16, 4, 5, 2, 0.85));
    features->push_back("top", conv_norm(16, 48, 1, 1, 1, true));
    register_module("features", features);
    classifier = register_module("classifier", nn::Sequential(nn::Dropout(0.2), nn::Linear(48, classes)));
  }
  Tensor forward(Tensor x) {
    x = features->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1});
    return classifier->forward(torch::flatten(x, 1));
  }
};
TORCH_MODULE(EfficientNet);

}  // namespace
}  // namespace ulp::test::efficientnet_net

ulp::test::Network ulp::test::efficientnet() {
  return {"efficientnet", [] { return instance(efficientnet_net::EfficientNet(10).ptr()); },
          normal({{3, 32, 32}})};
}
