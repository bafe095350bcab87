// WaveNet: causal dilated convolutions of sound, each gated, with a sum of skip connections.
#include "networks.h"

namespace ulp::test::wavenet_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct CausalConvImpl : nn::Module {
  int64_t padding;
  nn::Conv1d conv{nullptr};

  CausalConvImpl(int64_t in, int64_t out, int64_t kernel, int64_t dilation)
      : padding((kernel - 1) * dilation) {
    conv = register_module("conv", nn::Conv1d(nn::Conv1dOptions(in, out, kernel).dilation(dilation)));
  }
  Tensor forward(const Tensor& x) { return conv(F::pad(x, F::PadFuncOptions({padding, 0}))); }
};
TORCH_MODULE(CausalConv);

struct LayerImpl : nn::Module {
  CausalConv filter{nullptr}, gate{nullptr};
  nn::Conv1d residual{nullptr}, skip{nullptr};

  LayerImpl(int64_t channels, int64_t skips, int64_t dilation) {
    filter = register_module("filter", CausalConv(channels, channels, 2, dilation));
    gate = register_module("gate", CausalConv(channels, channels, 2, dilation));
    residual = register_module("residual", nn::Conv1d(channels, channels, 1));
    skip = register_module("skip", nn::Conv1d(channels, skips, 1));
  }
  std::pair<Tensor, Tensor> forward(const Tensor& x) {
    auto z = torch::tanh(filter(x)) * torch::sigmoid(gate(x));
    return {residual(z) + x, skip(z)};
  }
};
TORCH_MODULE(Layer);

struct WaveNetImpl : nn::Module {
  CausalConv input{nullptr};
  std::vector<Layer> layers;
  nn::Conv1d out1{nullptr}, out2{nullptr};

  WaveNetImpl(int64_t channels, int64_t skips, int64_t levels, int64_t depth) {
    input = register_module("input", CausalConv(1, channels, 2, 1));
    for (int64_t i = 0; i < depth; ++i) {
      layers.emplace_back(channels, skips, int64_t{1} << i);
      register_module("layer" + std::to_string(i), layers.back());
    }
    out1 = register_module("out1", nn::Conv1d(skips, skips, 1));
    out2 = register_module("out2", nn::Conv1d(skips, levels, 1));
  }
  Tensor forward(Tensor x) {
    x = input(x);
    Tensor total;
    for (auto& layer : layers) {
      auto [next, skip] = layer->forward(x);
      total = total.defined() ? total + skip : skip;
      x = next;
    }
    return out2(torch::relu(out1(torch::relu(total))));
  }
};
TORCH_MODULE(WaveNet);

}  // namespace
}  // namespace ulp::test::wavenet_net

ulp::test::Network ulp::test::wavenet() {
  return {"wavenet", [] { return instance(wavenet_net::WaveNet(12, 16, 16, 5).ptr()); }, normal({{1, 64}})};
}
