// Super resolution: residual blocks with reflected borders, pixel shuffle, and the enlarged image added.
#include "networks.h"

namespace ulp::test::super_resolution_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ReflectConvImpl : nn::Module {
  nn::ReflectionPad2d pad{nullptr};
  nn::Conv2d conv{nullptr};

  ReflectConvImpl(int64_t in, int64_t out, int64_t kernel) {
    pad = register_module("pad", nn::ReflectionPad2d(kernel / 2));
    conv = register_module("conv", nn::Conv2d(in, out, kernel));
  }
  Tensor forward(const Tensor& x) { return conv(pad(x)); }
};
TORCH_MODULE(ReflectConv);

struct ResBlockImpl : nn::Module {
  ReflectConv conv1{nullptr}, conv2{nullptr};
  nn::PReLU act{nullptr};

  explicit ResBlockImpl(int64_t channels) {
    conv1 = register_module("conv1", ReflectConv(channels, channels, 3));
    act = register_module("act", nn::PReLU(nn::PReLUOptions().num_parameters(channels)));
    conv2 = register_module("conv2", ReflectConv(channels, channels, 3));
  }
  Tensor forward(const Tensor& x) { return conv2(act(conv1(x))).mul(0.1) + x; }
};
TORCH_MODULE(ResBlock);

struct SuperResolutionImpl : nn::Module {
  int64_t factor;
  Tensor mean;
  ReflectConv head{nullptr}, upscale{nullptr};
  nn::Sequential body;

  explicit SuperResolutionImpl(int64_t scale) : factor(scale) {
    mean = register_buffer("mean", torch::tensor({0.45f, 0.44f, 0.40f}).view({1, 3, 1, 1}));
    head = register_module("head", ReflectConv(3, 16, 5));
    body = register_module("body", nn::Sequential(ResBlock(16), ResBlock(16)));
    upscale = register_module("upscale", ReflectConv(16, 3 * scale * scale, 3));
  }
  Tensor forward(const Tensor& image) {
    auto x = head(image - mean);
    x = torch::pixel_shuffle(upscale(body->forward(x) + x), factor);
    const auto large = F::interpolate(
        image,
        F::InterpolateFuncOptions()
            .scale_factor(std::vector<double>{static_cast<double>(factor), static_cast<double>(factor)})
            .mode(torch::kBilinear)
            .align_corners(false));
    return x + large;
  }
};
TORCH_MODULE(SuperResolution);

}  // namespace
}  // namespace ulp::test::super_resolution_net

ulp::test::Network ulp::test::super_resolution() {
  return {"super_resolution", [] { return instance(super_resolution_net::SuperResolution(2).ptr()); },
          normal({{3, 16, 16}})};
}
