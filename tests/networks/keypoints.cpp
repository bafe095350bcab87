// Key points of a figure: heat maps from an hourglass, and the place that each expects (soft argmax).
#include "networks.h"

namespace ulp::test::keypoints_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct KeypointNetImpl : nn::Module {
  nn::Sequential down;
  nn::ConvTranspose2d up{nullptr};
  nn::BatchNorm2d bn{nullptr};
  nn::Conv2d heat{nullptr};
  Tensor temperature;

  explicit KeypointNetImpl(int64_t points) {
    down = register_module(
        "down", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 12, 3).stride(2).padding(1)), nn::ReLU(),
                               nn::Conv2d(nn::Conv2dOptions(12, 24, 3).stride(2).padding(1)), nn::ReLU(),
                               nn::Conv2d(nn::Conv2dOptions(24, 24, 3).padding(2).dilation(2)), nn::ReLU()));
    up = register_module(
        "up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(24, 12, 4).stride(2).padding(1).bias(false)));
    bn = register_module("bn", nn::BatchNorm2d(12));
    heat = register_module("heat", nn::Conv2d(12, points, 1));
    temperature = register_parameter("temperature", torch::full({1}, 4.0));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& image) {
    auto maps = heat(torch::relu(bn(up(down->forward(image)))));
    const auto n = maps.size(0), k = maps.size(1), h = maps.size(2), w = maps.size(3);
    auto p = torch::softmax(maps.view({n, k, h * w}) * temperature, 2).view({n, k, h, w});
    auto xs = torch::linspace(-1, 1, w, maps.options()), ys = torch::linspace(-1, 1, h, maps.options());
    auto x = (p.sum(2) * xs).sum(-1);
    auto y = (p.sum(3) * ys).sum(-1);
    auto confidence = std::get<0>(p.flatten(2).max(-1));
    return {torch::stack({x, y}, -1), confidence};
  }
};
TORCH_MODULE(KeypointNet);

}  // namespace
}  // namespace ulp::test::keypoints_net

ulp::test::Network ulp::test::keypoints() {
  return {"keypoints", [] { return instance(keypoints_net::KeypointNet(5).ptr()); }, normal({{3, 32, 32}})};
}
