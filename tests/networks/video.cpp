// A classifier of short films: convolutions over space and time.
#include "networks.h"

namespace ulp::test::video_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct ConvBlockImpl : nn::Module {
  nn::Conv3d conv{nullptr};
  nn::BatchNorm3d bn{nullptr};

  ConvBlockImpl(int64_t in, int64_t out, int64_t stride) {
    conv = register_module(
        "conv", nn::Conv3d(nn::Conv3dOptions(in, out, 3).stride({1, stride, stride}).padding(1).bias(false)));
    bn = register_module("bn", nn::BatchNorm3d(out));
  }
  Tensor forward(const Tensor& x) { return torch::relu(bn(conv(x))); }
};
TORCH_MODULE(ConvBlock);

struct VideoNetImpl : nn::Module {
  ConvBlock block1{nullptr}, block2{nullptr}, block3{nullptr};
  nn::MaxPool3d pool{nullptr};
  nn::AdaptiveAvgPool3d gap{nullptr};
  nn::Linear fc{nullptr};

  explicit VideoNetImpl(int64_t classes) {
    block1 = register_module("block1", ConvBlock(3, 6, 2));
    pool = register_module("pool", nn::MaxPool3d(nn::MaxPool3dOptions({1, 2, 2}).stride({1, 2, 2})));
    block2 = register_module("block2", ConvBlock(6, 12, 1));
    block3 = register_module("block3", ConvBlock(12, 12, 1));
    gap = register_module("gap", nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions(1)));
    fc = register_module("fc", nn::Linear(12, classes));
  }
  Tensor forward(Tensor x) {
    x = block2(pool(block1(x)));
    x = x + block3(x);
    x = gap(x).flatten(1);
    return fc(torch::dropout(x, 0.3, is_training()));
  }
};
TORCH_MODULE(VideoNet);

}  // namespace
}  // namespace ulp::test::video_net

ulp::test::Network ulp::test::video() {
  return {"video", [] { return instance(video_net::VideoNet(6).ptr()); }, normal({{3, 4, 16, 16}})};
}
