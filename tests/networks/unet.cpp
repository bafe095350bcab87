// U-Nets with group norm and with instance norm, for images whose sides no power of two divides.
#include "networks.h"

namespace ulp::test::unet_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct DoubleConvImpl : nn::Module {
  nn::Sequential net;

  DoubleConvImpl(int64_t in, int64_t out, bool instance_norm) {
    const auto norm = [&](int64_t channels) {
      if (instance_norm)
        net->push_back(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(channels).affine(true)));
      else
        net->push_back(nn::GroupNorm(nn::GroupNormOptions(4, channels)));
    };
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
    norm(out);
    net->push_back(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.1).inplace(true)));
    net->push_back(nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)));
    norm(out);
    net->push_back(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.1).inplace(true)));
    register_module("net", net);
  }
  Tensor forward(Tensor x) { return net->forward(x); }
};
TORCH_MODULE(DoubleConv);

struct UpImpl : nn::Module {
  nn::ConvTranspose2d up{nullptr};
  DoubleConv conv{nullptr};

  UpImpl(int64_t in, int64_t out, bool instance_norm) {
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, in / 2, 2).stride(2)));
    conv = register_module("conv", DoubleConv(in / 2 + out, out, instance_norm));
  }
  Tensor forward(Tensor x1, Tensor x2) {
    x1 = up(x1);
    const auto dy = x2.size(2) - x1.size(2), dx = x2.size(3) - x1.size(3);
    x1 = F::pad(x1, F::PadFuncOptions({dx / 2, dx - dx / 2, dy / 2, dy - dy / 2}));
    return conv(torch::cat({x2, x1}, 1));
  }
};
TORCH_MODULE(Up);

struct UNetImpl : nn::Module {
  DoubleConv inc{nullptr}, down1{nullptr}, down2{nullptr};
  Up up1{nullptr}, up2{nullptr};
  nn::Conv2d outc{nullptr};

  UNetImpl(int64_t channels, int64_t classes, bool instance_norm) {
    inc = register_module("inc", DoubleConv(channels, 8, instance_norm));
    down1 = register_module("down1", DoubleConv(8, 16, instance_norm));
    down2 = register_module("down2", DoubleConv(16, 24, instance_norm));
    up1 = register_module("up1", Up(24, 16, instance_norm));
    up2 = register_module("up2", Up(16, 8, instance_norm));
    outc = register_module("outc", nn::Conv2d(8, classes, 1));
  }
  Tensor forward(Tensor x) {
    auto x1 = inc(x);
    auto x2 = down1(torch::max_pool2d(x1, 2));
    auto x3 = down2(torch::max_pool2d(x2, 2));
    x = up2(up1(x3, x2), x1);
    return outc(x).sigmoid();
  }
};
TORCH_MODULE(UNet);

}  // namespace
}  // namespace ulp::test::unet_net

ulp::test::Network ulp::test::unet_group() {
  return {"unet_group", [] { return instance(unet_net::UNet(3, 2, false).ptr()); }, normal({{3, 30, 26}})};
}

ulp::test::Network ulp::test::unet_instance() {
  return {"unet_instance", [] { return instance(unet_net::UNet(1, 1, true).ptr()); }, normal({{1, 28, 28}})};
}
