// Glow: normalisation by the first batch, invertible 1x1 convolutions whose determinant counts (one whole,
// one as a product of triangles), affine couplings, and a prior of each level.
#include "networks.h"

namespace ulp::test::glow_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Step = std::pair<Tensor, Tensor>;  ///< the result, the logarithm of the determinant

struct ActNormImpl : nn::Module {
  Tensor loc, scale, initialized;
  explicit ActNormImpl(int64_t channels) {
    loc = register_parameter("loc", torch::zeros({1, channels, 1, 1}));
    scale = register_parameter("scale", torch::ones({1, channels, 1, 1}));
    initialized = register_buffer("initialized", torch::tensor(0, torch::kByte));
  }
  void initialize(const Tensor& input) {
    torch::NoGradGuard no_grad;
    const auto flat = input.permute({1, 0, 2, 3}).contiguous().view({input.size(1), -1});
    const auto mean = flat.mean(1).view({1, -1, 1, 1}), std = flat.std(1).view({1, -1, 1, 1});
    loc.data().copy_(-mean);
    scale.data().copy_(1 / (std + 1e-6));
  }
  Step forward(const Tensor& input) {
    if (initialized.item<int>() == 0) {
      initialize(input);
      initialized.fill_(1);
    }
    const auto log_abs = torch::log(torch::abs(scale));
    return {scale * (input + loc), input.size(2) * input.size(3) * torch::sum(log_abs)};
  }
};
TORCH_MODULE(ActNorm);

struct InvConvImpl : nn::Module {
  bool triangles;
  Tensor weight, w_p, u_mask, l_mask, l_eye, s_sign, w_l, w_s, w_u;

  InvConvImpl(int64_t channels, bool lu) : triangles(lu) {
    const auto q = std::get<0>(torch::linalg_qr(torch::randn({channels, channels})));
    if (!triangles) {
      weight = register_parameter("weight", q.unsqueeze(2).unsqueeze(3));
      return;
    }
    auto [p, l, u] = torch::linalg_lu(q);
    const auto s = torch::diagonal(u);
    w_p = register_buffer("w_p", p);
    u_mask = register_buffer("u_mask", torch::ones_like(q).triu(1));
    l_mask = register_buffer("l_mask", u_mask.t().clone());
    l_eye = register_buffer("l_eye", torch::eye(channels));
    s_sign = register_buffer("s_sign", torch::sign(s));
    w_l = register_parameter("w_l", l.clone());
    w_s = register_parameter("w_s", torch::log(torch::abs(s)));
    w_u = register_parameter("w_u", torch::triu(u, 1));
  }
  Step forward(const Tensor& input) {
    const auto pixels = static_cast<double>(input.size(2) * input.size(3));
    if (!triangles) {
      const auto det = std::get<1>(torch::slogdet(weight.squeeze().to(torch::kDouble))).to(torch::kFloat);
      return {F::conv2d(input, weight), pixels * det};
    }
    const auto w =
        w_p.matmul(w_l * l_mask + l_eye).matmul(w_u * u_mask + torch::diag(s_sign * torch::exp(w_s)));
    return {F::conv2d(input, w.unsqueeze(2).unsqueeze(3)), pixels * torch::sum(w_s)};
  }
};
TORCH_MODULE(InvConv);

struct ZeroConvImpl : nn::Module {
  nn::Conv2d conv{nullptr};
  Tensor scale;
  ZeroConvImpl(int64_t in, int64_t out) {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(in, out, 3)));
    scale = register_parameter("scale", torch::zeros({1, out, 1, 1}));
  }
  Tensor forward(const Tensor& input) {
    auto out = conv(F::pad(input, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kConstant).value(1)));
    return out * torch::exp(scale * 3);
  }
};
TORCH_MODULE(ZeroConv);

struct CouplingImpl : nn::Module {
  nn::Sequential net;
  CouplingImpl(int64_t channels, int64_t filters) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(channels / 2, filters, 3).padding(1)));
    net->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
    net->push_back(nn::Conv2d(nn::Conv2dOptions(filters, filters, 1)));
    net->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
    net->push_back(ZeroConv(filters, channels));
    register_module("net", net);
  }
  Step forward(const Tensor& input) {
    const auto halves = input.chunk(2, 1);
    const auto parts = net->forward(halves[0]).chunk(2, 1);
    const auto s = torch::sigmoid(parts[0] + 2);
    const auto out_b = (halves[1] + parts[1]) * s;
    return {torch::cat({halves[0], out_b}, 1), torch::sum(torch::log(s).view({input.size(0), -1}), 1)};
  }
};
TORCH_MODULE(Coupling);

struct FlowImpl : nn::Module {
  ActNorm actnorm{nullptr};
  InvConv invconv{nullptr};
  Coupling coupling{nullptr};
  FlowImpl(int64_t channels, bool lu) {
    actnorm = register_module("actnorm", ActNorm(channels));
    invconv = register_module("invconv", InvConv(channels, lu));
    coupling = register_module("coupling", Coupling(channels, 16));
  }
  Step forward(Tensor out) {
    Tensor logdet, det1, det2;
    std::tie(out, logdet) = actnorm(out);
    std::tie(out, det1) = invconv(out);
    std::tie(out, det2) = coupling(out);
    logdet = logdet + det1;
    return {out, det2.defined() ? logdet + det2 : logdet};
  }
};
TORCH_MODULE(Flow);

Tensor gaussian_log_p(const Tensor& x, const Tensor& mean, const Tensor& log_sd) {
  return -0.5 * std::log(2 * M_PI) - log_sd - 0.5 * (x - mean).pow(2) / torch::exp(2 * log_sd);
}

struct LevelImpl : nn::Module {
  nn::ModuleList flows;
  ZeroConv prior{nullptr};
  bool split;
  LevelImpl(int64_t channels, int64_t steps, bool splits) : split(splits) {
    for (int64_t i = 0; i < steps; ++i) flows->push_back(Flow(4 * channels, i % 2 == 0));
    register_module("flows", flows);
    prior =
        register_module("prior", ZeroConv(split ? 2 * channels : 4 * channels, (split ? 4 : 8) * channels));
  }
  std::tuple<Tensor, Tensor, Tensor, Tensor> forward(const Tensor& input) {
    const auto b = input.size(0), c = input.size(1), h = input.size(2), w = input.size(3);
    auto out = input.view({b, c, h / 2, 2, w / 2, 2})
                   .permute({0, 1, 3, 5, 2, 4})
                   .contiguous()
                   .view({b, c * 4, h / 2, w / 2});
    Tensor logdet = torch::tensor(0.0f);
    for (auto& flow : *flows) {
      auto [next, det] = flow->as<Flow>()->forward(out);
      out = next;
      logdet = logdet + det;
    }
    Tensor z = out;
    auto base = torch::zeros_like(out);
    if (split) {
      const auto halves = out.chunk(2, 1);
      base = out = halves[0];
      z = halves[1];
    }
    const auto parts = prior(base).chunk(2, 1);
    const auto log_p = gaussian_log_p(z, parts[0], parts[1]).view({b, -1}).sum(1);
    return {out, logdet, log_p, z};
  }
};
TORCH_MODULE(Level);

struct GlowImpl : nn::Module {
  nn::ModuleList blocks;
  GlowImpl() {
    blocks->push_back(Level(3, 2, true));
    blocks->push_back(Level(6, 2, false));
    register_module("blocks", blocks);
  }
  std::tuple<Tensor, Tensor, std::vector<Tensor>> forward(Tensor out) {
    Tensor log_p_sum, logdet;
    std::vector<Tensor> z_outs;
    for (size_t i = 0; i < blocks->size(); ++i) {
      auto [next, det, log_p, z] = blocks->at<LevelImpl>(i).forward(out);
      out = next;
      z_outs.push_back(z);
      logdet = logdet.defined() ? logdet + det : det;
      log_p_sum = log_p_sum.defined() ? log_p_sum + log_p : log_p;
    }
    return {log_p_sum, logdet, z_outs};
  }
};
TORCH_MODULE(Glow);

}  // namespace
}  // namespace ulp::test::glow_net

ulp::test::Network ulp::test::glow() {
  const auto make = [] {
    glow_net::Glow model;
    const torch::NoGradGuard no_grad;
    model->forward(torch::randn({8, 3, 8, 8}));  // the batch that it initialises itself by
    return instance(model.ptr());
  };
  return {"glow", make, normal({{3, 8, 8}})};
}
