// A gated PixelCNN: convolutions with masked kernels, a vertical and a horizontal stack, and a class that
// each pixel is drawn under.
#include "networks.h"

namespace ulp::test::pixelcnn_net {
namespace {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// A convolution that sees what was drawn before: 'A' not the pixel itself, 'B' that, too.
struct MaskedConv2dImpl : nn::Conv2dImpl {
  Tensor mask;

  MaskedConv2dImpl(char type, int64_t in, int64_t out, at::IntArrayRef kernel)
      : Conv2dImpl(nn::Conv2dOptions(in, out, {kernel[0], kernel[1]})
                       .padding(std::vector<int64_t>{kernel[0] / 2, kernel[1] / 2})) {
    mask = register_buffer("mask", torch::ones_like(weight));
    const auto h = weight.size(2), w = weight.size(3);
    mask.index_put_({Slice(), Slice(), h / 2, Slice(w / 2 + (type == 'B' ? 1 : 0), None)}, 0);
    mask.index_put_({Slice(), Slice(), Slice(h / 2 + 1, None)}, 0);
  }
  Tensor forward(const Tensor& x) {
    return F::conv2d(x, weight * mask, F::Conv2dFuncOptions().bias(bias).padding(options.padding()));
  }
};
TORCH_MODULE(MaskedConv2d);

Tensor gate(const Tensor& x, const Tensor& shift) {
  const auto parts = (x + shift.index({"...", None, None})).chunk(2, 1);
  return torch::tanh(parts[0]) * torch::sigmoid(parts[1]);
}

struct GatedLayerImpl : nn::Module {
  nn::Embedding label{nullptr};
  nn::Conv2d vertical{nullptr}, vertical_to_horizontal{nullptr}, skip{nullptr};
  MaskedConv2d horizontal{nullptr};
  bool residual;

  GatedLayerImpl(char type, int64_t width, int64_t classes) : residual(type == 'B') {
    label = register_module("label", nn::Embedding(classes, 2 * width));
    vertical = register_module("vertical", nn::Conv2d(nn::Conv2dOptions(width, 2 * width, {2, 3})));
    vertical_to_horizontal =
        register_module("vertical_to_horizontal", nn::Conv2d(nn::Conv2dOptions(2 * width, 2 * width, 1)));
    const std::vector<int64_t> kernel{1, 3};
    horizontal = register_module("horizontal", MaskedConv2d(type, width, 2 * width, kernel));
    skip = register_module("skip", nn::Conv2d(nn::Conv2dOptions(width, width, 1)));
  }
  std::pair<Tensor, Tensor> forward(const Tensor& v, const Tensor& h, const Tensor& labels) {
    const auto shift = label(labels);
    const auto above = vertical(F::pad(v, F::PadFuncOptions({1, 1, 1, 0})));
    // One row down: a pixel sees the rows above its own.
    const auto shifted =
        F::pad(above, F::PadFuncOptions({0, 0, 1, 0})).index({"...", Slice(None, -1), Slice()});
    auto out = skip(gate(horizontal(h) + vertical_to_horizontal(shifted), shift));
    if (residual) out += h;
    return {gate(above, shift), out};
  }
};
TORCH_MODULE(GatedLayer);

struct PixelCnnImpl : nn::Module {
  int64_t levels;
  MaskedConv2d input{nullptr};
  nn::ModuleList layers;
  nn::Sequential output;

  PixelCnnImpl(int64_t channels, int64_t width, int64_t levels_of_grey, int64_t classes)
      : levels(levels_of_grey) {
    const std::vector<int64_t> kernel{5, 5};
    input = register_module("input", MaskedConv2d('A', channels, width, kernel));
    for (int i = 0; i < 3; ++i) layers->push_back(GatedLayer(i == 0 ? 'A' : 'B', width, classes));
    register_module("layers", layers);
    output->push_back(nn::Conv2d(nn::Conv2dOptions(width, 24, 1)));
    output->push_back(nn::Functional(torch::relu));
    output->push_back(nn::Conv2d(nn::Conv2dOptions(24, levels * channels, 1)));
    register_module("output", output);
  }
  Tensor forward(const Tensor& images, const Tensor& labels) {
    auto v = input(images), h = v;
    for (const auto& layer : *layers)
      std::tie(v, h) = std::static_pointer_cast<GatedLayerImpl>(layer)->forward(v, h, labels);
    return output->forward(h).view({images.size(0), levels, images.size(1), images.size(2), images.size(3)});
  }
};
TORCH_MODULE(PixelCnn);

}  // namespace
}  // namespace ulp::test::pixelcnn_net

ulp::test::Network ulp::test::pixelcnn() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::rand({batch, 1, 10, 10}), torch::randint(0, 4, {batch})};
  };
  return {"pixelcnn", [] { return instance(pixelcnn_net::PixelCnn(1, 12, 8, 4).ptr()); }, inputs};
}
