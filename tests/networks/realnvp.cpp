// Real NVP: couplings under checkerboards and between channels, convolutions whose weights have a norm of
// their own, and pixels that become logits.
#include "networks.h"

namespace ulp::test::realnvp_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct WNConvImpl : nn::Module {
  Tensor weight_v, weight_g, bias;
  int64_t padding;
  WNConvImpl(int64_t in, int64_t out, int64_t kernel) : padding(kernel / 2) {
    weight_v = register_parameter("weight_v", torch::randn({out, in, kernel, kernel}) * 0.2);
    weight_g = register_parameter("weight_g", weight_v.detach().flatten(1).norm(2, 1).view({-1, 1, 1, 1}));
    bias = register_parameter("bias", torch::zeros({out}));
  }
  Tensor forward(const Tensor& x) {
    const auto norm = weight_v.flatten(1).norm(2, 1).view({-1, 1, 1, 1});
    return F::conv2d(x, weight_v * (weight_g / norm), F::Conv2dFuncOptions().bias(bias).padding(padding));
  }
};
TORCH_MODULE(WNConv);

struct StNetImpl : nn::Module {
  nn::BatchNorm2d in_norm{nullptr}, out_norm{nullptr};
  WNConv in_conv{nullptr}, mid{nullptr}, skip{nullptr}, out_conv{nullptr};
  StNetImpl(int64_t in, int64_t mid_channels, int64_t out) {
    in_norm = register_module("in_norm", nn::BatchNorm2d(in));
    in_conv = register_module("in_conv", WNConv(2 * in, mid_channels, 3));
    mid = register_module("mid", WNConv(mid_channels, mid_channels, 3));
    skip = register_module("skip", WNConv(mid_channels, mid_channels, 1));
    out_norm = register_module("out_norm", nn::BatchNorm2d(mid_channels));
    out_conv = register_module("out_conv", WNConv(mid_channels, out, 1));
  }
  Tensor forward(Tensor x) {
    x = in_norm(x);
    x *= 2.;
    x = torch::cat({x, -x}, 1);
    x = in_conv(F::relu(x));
    auto x_skip = skip(x);
    x = x + mid(torch::relu(x));
    x_skip += x;
    return out_conv(torch::relu_(x_skip = out_norm(x_skip)));
  }
};
TORCH_MODULE(StNet);

/// 1 where row and column are both even or both odd.
Tensor checkerboard(int64_t height, int64_t width, bool reverse) {
  std::vector<float> cells;
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j) cells.push_back((i + j) % 2 == (reverse ? 1 : 0) ? 1.f : 0.f);
  return torch::tensor(cells).view({1, 1, height, width});
}

struct CouplingImpl : nn::Module {
  bool by_channels, reverse;
  StNet st_net{nullptr};
  Tensor rescale;

  CouplingImpl(int64_t in, int64_t mid, bool channels, bool reverse_mask)
      : by_channels(channels), reverse(reverse_mask) {
    const int64_t seen = by_channels ? in / 2 : in;
    st_net = register_module("st_net", StNet(seen, mid, 2 * seen));
    rescale = register_parameter("rescale", torch::ones({seen, 1, 1}));
  }
  std::tuple<Tensor, Tensor> forward(Tensor x, Tensor sldj) {
    if (!by_channels) {
      const auto b = checkerboard(x.size(2), x.size(3), reverse).to(x.device());
      const auto st = st_net(x * b).chunk(2, 1);
      const auto s = rescale * torch::tanh(st[0]) * (1 - b), t = st[1] * (1 - b);
      x = (x + t) * s.exp();
      sldj += s.reshape({s.size(0), -1}).sum(-1);
      return {x, sldj};
    }
    auto parts = x.chunk(2, 1);
    if (reverse) std::swap(parts[0], parts[1]);
    const auto st = st_net(parts[1]).chunk(2, 1);
    const auto s = rescale * torch::tanh(st[0]);
    parts[0] = (parts[0] + st[1]) * s.exp();
    sldj += s.flatten(1).sum(-1);
    return {reverse ? torch::cat({parts[1], parts[0]}, 1) : torch::cat({parts[0], parts[1]}, 1), sldj};
  }
};
TORCH_MODULE(Coupling);

struct RealNvpImpl : nn::Module {
  Tensor data_constraint;
  nn::ModuleList in_couplings, out_couplings;

  RealNvpImpl(int64_t channels, int64_t mid) {
    data_constraint = register_buffer("data_constraint", torch::tensor({0.9f}));
    for (const bool reverse : {false, true, false})
      in_couplings->push_back(Coupling(channels, mid, false, reverse));
    for (const bool reverse : {false, true})
      out_couplings->push_back(Coupling(4 * channels, mid, true, reverse));
    register_module("in_couplings", in_couplings);
    register_module("out_couplings", out_couplings);
  }
  std::tuple<Tensor, Tensor> pre_process(const Tensor& x) {
    auto y = is_training() ? (x * 255. + torch::rand_like(x)) / 256. : x;
    y = (2 * y - 1) * data_constraint;
    y = (y + 1) / 2;
    y = y.log() - (1. - y).log();
    const auto limit = (1. - data_constraint).log() - data_constraint.log();
    const auto ldj = F::softplus(y) + F::softplus(-y) - F::softplus(limit);
    return {y, ldj.view({ldj.size(0), -1}).sum(-1)};
  }
  static Tensor squeeze_2x2(Tensor x) {
    const auto b = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
    x = x.permute({0, 2, 3, 1}).reshape({b, h / 2, 2, w / 2, 2, c}).permute({0, 1, 3, 5, 2, 4});
    return x.reshape({b, h / 2, w / 2, c * 4}).permute({0, 3, 1, 2});
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& images) {
    auto [x, sldj] = pre_process(images);
    for (auto& coupling : *in_couplings) std::tie(x, sldj) = coupling->as<Coupling>()->forward(x, sldj);
    x = squeeze_2x2(x);
    for (auto& coupling : *out_couplings) std::tie(x, sldj) = coupling->as<Coupling>()->forward(x, sldj);
    return std::make_tuple(x, sldj);
  }
};
TORCH_MODULE(RealNvp);

}  // namespace
}  // namespace ulp::test::realnvp_net

ulp::test::Network ulp::test::realnvp() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::rand({batch, 2, 8, 8}).mul_(0.9).add_(0.05)};
  };
  return {"realnvp", [] { return instance(realnvp_net::RealNvp(2, 12).ptr()); }, inputs};
}
