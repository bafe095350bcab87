// A diffusion transformer: time and class move and scale what the norms give, and a class is dropped now and
// then in train mode.
#include "networks.h"

namespace ulp::test::dit_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

Tensor modulate(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1);
}

nn::LayerNorm plain_norm(int64_t dim) {
  return nn::LayerNorm(nn::LayerNormOptions({dim}).elementwise_affine(false).eps(1e-6));
}

struct TimestepEmbedderImpl : nn::Module {
  int64_t size = 16;
  nn::Sequential mlp;
  explicit TimestepEmbedderImpl(int64_t hidden) {
    mlp = register_module("mlp",
                          nn::Sequential(nn::Linear(size, hidden), nn::SiLU(), nn::Linear(hidden, hidden)));
  }
  Tensor forward(const Tensor& t) {
    const int64_t half = size / 2;
    auto freqs =
        torch::exp(-std::log(10000) * torch::arange(/*start=*/0, /*end=*/half, torch::kFloat) / half);
    auto args =
        t.index({torch::indexing::Slice(), torch::indexing::None}).to(torch::kFloat) * freqs.unsqueeze(0);
    return mlp->forward(torch::cat({torch::cos(args), torch::sin(args)}, -1));
  }
};
TORCH_MODULE(TimestepEmbedder);

struct LabelEmbedderImpl : nn::Module {
  nn::Embedding table{nullptr};
  int64_t classes;
  double dropout;
  LabelEmbedderImpl(int64_t num_classes, int64_t hidden, double p) : classes(num_classes), dropout(p) {
    table = register_module("table", nn::Embedding(classes + 1, hidden));
  }
  Tensor forward(Tensor labels) {
    if (is_training() && dropout > 0) {
      const auto drop = torch::rand({labels.size(0)}, labels.device()) < dropout;
      labels = torch::where(drop, torch::full_like(labels, classes), labels);
    }
    return table(labels);
  }
};
TORCH_MODULE(LabelEmbedder);

struct DiTBlockImpl : nn::Module {
  int64_t heads;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr};
  nn::Sequential mlp, ada_ln;
  DiTBlockImpl(int64_t dim, int64_t num_heads) : heads(num_heads) {
    norm1 = register_module("norm1", plain_norm(dim));
    norm2 = register_module("norm2", plain_norm(dim));
    qkv = register_module("qkv", nn::Linear(dim, 3 * dim));
    proj = register_module("proj", nn::Linear(dim, dim));
    mlp = register_module(
        "mlp", nn::Sequential(nn::Linear(dim, 4 * dim), nn::GELU(nn::GELUOptions().approximate("tanh")),
                              nn::Linear(4 * dim, dim)));
    ada_ln = register_module("ada_ln", nn::Sequential(nn::SiLU(), nn::Linear(dim, 6 * dim)));
  }
  Tensor attention(const Tensor& x) {
    const auto B = x.size(0), N = x.size(1), C = x.size(2);
    const auto parts = qkv(x).reshape({B, N, 3, heads, C / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return proj(y.transpose(1, 2).reshape({B, N, C}));
  }
  Tensor forward(Tensor x, const Tensor& c) {
    const auto m = ada_ln->forward(c).chunk(6, 1);
    x = x + m[2].unsqueeze(1) * attention(modulate(norm1(x), m[0], m[1]));
    x = x + m[5].unsqueeze(1) * mlp->forward(modulate(norm2(x), m[3], m[4]));
    return x;
  }
};
TORCH_MODULE(DiTBlock);

struct DiTImpl : nn::Module {
  int64_t patch = 2, channels = 4;
  nn::Conv2d x_embedder{nullptr};
  TimestepEmbedder t_embedder{nullptr};
  LabelEmbedder y_embedder{nullptr};
  Tensor pos_embed;
  nn::ModuleList blocks;
  nn::LayerNorm norm_final{nullptr};
  nn::Linear linear{nullptr};
  nn::Sequential ada_ln;

  DiTImpl(int64_t side, int64_t hidden, int64_t classes) {
    x_embedder =
        register_module("x_embedder", nn::Conv2d(nn::Conv2dOptions(channels, hidden, patch).stride(patch)));
    t_embedder = register_module("t_embedder", TimestepEmbedder(hidden));
    y_embedder = register_module("y_embedder", LabelEmbedder(classes, hidden, 0.3));
    pos_embed = register_parameter("pos_embed", torch::randn({1, side * side / 4, hidden}) * 0.1, false);
    for (int i = 0; i < 2; ++i) blocks->push_back(DiTBlock(hidden, 3));
    register_module("blocks", blocks);
    norm_final = register_module("norm_final", plain_norm(hidden));
    linear = register_module("linear", nn::Linear(hidden, patch * patch * 2 * channels));
    ada_ln = register_module("ada_ln", nn::Sequential(nn::SiLU(), nn::Linear(hidden, 2 * hidden)));
  }
  Tensor unpatchify(const Tensor& x) const {
    const auto c = 2 * channels, h = static_cast<int64_t>(std::sqrt(x.size(1)));
    auto y = x.reshape({x.size(0), h, h, patch, patch, c});
    y = torch::einsum("nhwpqc->nchpwq", {y});
    return y.reshape({x.size(0), c, h * patch, h * patch});
  }
  Tensor forward(Tensor x, Tensor t, Tensor y) {
    x = x_embedder(x).flatten(2).transpose(1, 2) + pos_embed;
    const auto c = t_embedder(t) + y_embedder(y);
    for (auto it = blocks->begin(); it != blocks->end(); ++it) x = (*it)->as<DiTBlock>()->forward(x, c);
    const auto m = ada_ln->forward(c).chunk(2, 1);
    return unpatchify(linear(modulate(norm_final(x), m[0], m[1])));
  }
};
TORCH_MODULE(DiT);

}  // namespace
}  // namespace ulp::test::dit_net

ulp::test::Network ulp::test::dit() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 4, 8, 8}), torch::rand({batch}) * 100,
                                      torch::randint(0, 5, {batch})};
  };
  return {"dit", [] { return instance(dit_net::DiT(8, 24, 5).ptr()); }, inputs};
}
