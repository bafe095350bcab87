// A VQ-VAE of two levels: codes of the nearest rows of a codebook, which moving averages follow in train
// mode.
#include "networks.h"

namespace ulp::test::vqvae_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Quantized {
  Tensor quantize, diff, embed_ind;
};

struct QuantizeImpl : nn::Module {
  int64_t dim, n_embed;
  double decay = 0.9, eps = 1e-5;
  Tensor embed, cluster_size, embed_avg;

  QuantizeImpl(int64_t width, int64_t count) : dim(width), n_embed(count) {
    embed = register_buffer("embed", torch::randn({dim, n_embed}));
    cluster_size = register_buffer("cluster_size", torch::zeros(n_embed));
    embed_avg = register_buffer("embed_avg", embed.clone());
  }
  Quantized forward(const Tensor& input) {
    const auto flatten = input.reshape({-1, dim});
    const auto dist = flatten.pow(2).sum(1, true) - 2 * flatten.matmul(embed) + embed.pow(2).sum(0, true);
    const auto embed_ind = std::get<1>((-dist).max(1));
    const auto onehot = F::one_hot(embed_ind, n_embed).to(flatten.dtype());
    const auto codes = embed_ind.view(input.sizes().slice(0, input.dim() - 1));
    auto quantize = F::embedding(codes, embed.transpose(0, 1));
    if (is_training()) {
      cluster_size.data().mul_(decay).add_(onehot.sum(0), 1 - decay);
      embed_avg.data().mul_(decay).add_(flatten.detach().transpose(0, 1).matmul(onehot), 1 - decay);
      const auto n = cluster_size.sum();
      const auto size = (cluster_size + eps) / (n + n_embed * eps) * n;
      embed.data().copy_(embed_avg / size.unsqueeze(0));
    }
    const auto diff = (quantize.detach() - input).pow(2).mean();
    quantize = input + (quantize - input).detach();
    return {quantize, diff, codes};
  }
};
TORCH_MODULE(Quantize);

struct ResBlockImpl : nn::Module {
  nn::Sequential conv;
  ResBlockImpl(int64_t in, int64_t channel) {
    conv = register_module(
        "conv",
        nn::Sequential(nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(in, channel, 3).padding(1)),
                       nn::ReLU(nn::ReLUOptions(true)), nn::Conv2d(nn::Conv2dOptions(channel, in, 1))));
  }
  Tensor forward(const Tensor& input) {
    auto out = conv->forward(input);
    out += input;
    return out;
  }
};
TORCH_MODULE(ResBlock);

nn::Sequential encoder(int64_t in, int64_t channel) {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, channel, 4).stride(2).padding(1)), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(channel, channel, 3).padding(1)), ResBlock(channel, 8),
                        nn::ReLU(nn::ReLUOptions(true)));
}

nn::Sequential decoder(int64_t in, int64_t out, int64_t channel) {
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(in, channel, 3).padding(1)), ResBlock(channel, 8),
      nn::ReLU(nn::ReLUOptions(true)),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(channel, out, 4).stride(2).padding(1)));
}

struct VqVae2Impl : nn::Module {
  nn::Sequential enc_b, enc_t, dec_t, dec;
  nn::Conv2d quantize_conv_t{nullptr}, quantize_conv_b{nullptr};
  Quantize quantize_t{nullptr}, quantize_b{nullptr};
  nn::ConvTranspose2d upsample_t{nullptr};

  VqVae2Impl(int64_t channel, int64_t dim, int64_t n_embed) {
    enc_b = register_module("enc_b", encoder(3, channel));
    enc_t = register_module("enc_t", encoder(channel, channel));
    quantize_conv_t = register_module("quantize_conv_t", nn::Conv2d(nn::Conv2dOptions(channel, dim, 1)));
    quantize_t = register_module("quantize_t", Quantize(dim, n_embed));
    dec_t = register_module("dec_t", decoder(dim, dim, channel));
    quantize_conv_b =
        register_module("quantize_conv_b", nn::Conv2d(nn::Conv2dOptions(dim + channel, dim, 1)));
    quantize_b = register_module("quantize_b", Quantize(dim, n_embed));
    upsample_t = register_module(
        "upsample_t", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(dim, dim, 4).stride(2).padding(1)));
    dec = register_module("dec", decoder(2 * dim, 3, channel));
  }
  std::vector<Tensor> forward(const Tensor& input) {
    const auto bottom = enc_b->forward(input);
    auto top = quantize_t(quantize_conv_t(enc_t->forward(bottom)).permute({0, 2, 3, 1}));
    top.quantize = top.quantize.permute({0, 3, 1, 2});
    const auto both = torch::cat({dec_t->forward(top.quantize), bottom}, 1);
    const auto low = quantize_b(quantize_conv_b(both).permute({0, 2, 3, 1}));
    const auto quant_b = low.quantize.permute({0, 3, 1, 2});
    const auto image = dec->forward(torch::cat({upsample_t(top.quantize), quant_b}, 1));
    if (is_training()) return {image, (top.diff + low.diff).unsqueeze(0)};
    return {image, top.embed_ind, low.embed_ind};
  }
};
TORCH_MODULE(VqVae2);

}  // namespace
}  // namespace ulp::test::vqvae_net

ulp::test::Network ulp::test::vqvae2() {
  return {.name = "vqvae2",
          .make = [] { return instance(vqvae_net::VqVae2(16, 6, 10).ptr()); },
          .inputs = normal({{3, 16, 16}}),
          .near_ties = 0.05};
}
