// A masked autoencoder: patches in an order drawn at random, of which the encoder sees the first few, and a
// decoder that puts them back among mask tokens. The loss is a result in train mode.
#include "networks.h"

namespace ulp::test::mae_net {
namespace {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct AttentionImpl : nn::Module {
  int64_t heads;
  double scale;
  nn::Linear qkv{nullptr}, proj{nullptr};
  AttentionImpl(int64_t dim, int64_t num_heads)
      : heads(num_heads), scale(std::pow(static_cast<double>(dim / num_heads), -0.5)) {
    qkv = register_module("qkv", nn::Linear(dim, dim * 3));
    proj = register_module("proj", nn::Linear(dim, dim));
  }
  Tensor forward(const Tensor& x) {
    const auto sizes = x.sizes();
    const auto all =
        qkv(x).reshape({sizes[0], sizes[1], 3, heads, sizes[2] / heads}).permute({2, 0, 3, 1, 4});
    const Tensor q = all[0], k = all[1], v = all[2];
    auto attn = (q.matmul(k.transpose(-2, -1)) * scale).softmax(-1);
    return proj(attn.matmul(v).transpose(1, 2).reshape({sizes[0], sizes[1], sizes[2]}));
  }
};
TORCH_MODULE(Attention);

struct LayerImpl : nn::Module {
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  Attention attn{nullptr};
  nn::Sequential mlp;
  LayerImpl(int64_t dim, int64_t heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({dim}).eps(1e-6)));
    attn = register_module("attn", Attention(dim, heads));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({dim}).eps(1e-6)));
    mlp = register_module("mlp",
                          nn::Sequential(nn::Linear(dim, 2 * dim), nn::GELU(), nn::Linear(2 * dim, dim)));
  }
  Tensor forward(Tensor x) {
    x = x + attn(norm1(x));
    return x + mlp->forward(norm2(x));
  }
};
TORCH_MODULE(Layer);

struct MaeImpl : nn::Module {
  int64_t patch, side, dim, decoder_dim;
  double mask_ratio;
  nn::Conv2d patch_embed{nullptr};
  Tensor cls_token, mask_token, pos_embed, decoder_pos_embed;
  nn::ModuleList blocks, decoder_blocks;
  nn::Linear decoder_embed{nullptr}, decoder_pred{nullptr};
  nn::LayerNorm norm{nullptr};

  MaeImpl(int64_t image, int64_t patch_size, int64_t width, int64_t decoder_width, double ratio)
      : patch(patch_size),
        side(image / patch_size),
        dim(width),
        decoder_dim(decoder_width),
        mask_ratio(ratio) {
    patch_embed = register_module("patch_embed", nn::Conv2d(nn::Conv2dOptions(3, dim, patch).stride(patch)));
    cls_token = register_parameter("cls_token", torch::randn({1, 1, dim}) * 0.02);
    mask_token = register_parameter("mask_token", torch::randn({1, 1, decoder_dim}) * 0.02);
    pos_embed = register_parameter("pos_embed", sin_cos(dim), /*requires_grad=*/false);
    decoder_pos_embed = register_parameter("decoder_pos_embed", sin_cos(decoder_dim), false);
    for (int i = 0; i < 2; ++i) blocks->push_back(Layer(dim, 4));
    decoder_blocks->push_back(Layer(decoder_dim, 4));
    register_module("blocks", blocks);
    register_module("decoder_blocks", decoder_blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({dim})));
    decoder_embed = register_module("decoder_embed", nn::Linear(dim, decoder_dim));
    decoder_pred = register_module("decoder_pred", nn::Linear(decoder_dim, patch * patch * 3));
  }
  /// Rows of the class token (zeros) and of each patch: sines and cosines of its place.
  Tensor sin_cos(int64_t width) const {
    const auto omega = 1.0 / torch::pow(10000.0, torch::arange(width / 4, torch::kFloat) / (width / 4.0));
    const auto grid =
        torch::meshgrid({torch::arange(side, torch::kFloat), torch::arange(side, torch::kFloat)}, "xy");
    std::vector<Tensor> parts;
    for (const auto& axis : grid) {
      const auto angle = torch::einsum("m,d->md", {axis.reshape(-1), omega});
      parts.insert(parts.end(), {torch::sin(angle), torch::cos(angle)});
    }
    return torch::cat({torch::zeros({1, width}), torch::cat(parts, 1)}).unsqueeze(0);
  }
  Tensor patchify(const Tensor& images) const {
    auto x = images.reshape({images.size(0), 3, side, patch, side, patch});
    return torch::einsum("nchpwq->nhwpqc", {x}).reshape({images.size(0), side * side, patch * patch * 3});
  }
  std::tuple<Tensor, Tensor, Tensor> random_masking(const Tensor& x, const Tensor& noise) const {
    const auto N = x.size(0), L = x.size(1), D = x.size(2);
    const auto keep = static_cast<int64_t>(static_cast<double>(L) * (1 - mask_ratio));
    const auto ids_shuffle = torch::argsort(noise, /*dim=*/1, /*descending=*/false);
    const auto ids_restore = torch::argsort(ids_shuffle, 1, false);
    const auto ids_keep = ids_shuffle.index({Slice(), Slice(None, keep)});
    const auto kept = torch::gather(x, 1, ids_keep.unsqueeze(-1).repeat({1, 1, D}));
    auto mask = torch::ones({N, L}, x.device());
    mask.index_put_({Slice(), Slice(None, keep)}, 0);
    return {kept, torch::gather(mask, 1, ids_restore), ids_restore};
  }
  /// The noise of the masks is drawn in train mode; in eval mode it is given, so that masks can be repeated.
  std::vector<Tensor> forward(const Tensor& images, Tensor noise) {
    auto x = patch_embed(images).flatten(2).transpose(1, 2) + pos_embed.index({Slice(), Slice(1, None)});
    if (is_training()) noise = torch::rand({x.size(0), x.size(1)}, x.options());
    auto [kept, mask, ids_restore] = random_masking(x, noise);
    auto cls = cls_token + pos_embed.index({Slice(), Slice(None, 1)});
    x = torch::cat({cls.expand({kept.size(0), -1, -1}), kept}, 1);
    for (auto& block : *blocks) x = block->as<Layer>()->forward(x);
    x = decoder_embed(norm(x));
    const auto mask_tokens = mask_token.repeat({x.size(0), ids_restore.size(1) + 1 - x.size(1), 1});
    auto y = torch::cat({x.index({Slice(), Slice(1, None), Slice()}), mask_tokens}, 1);
    y = torch::gather(y, 1, ids_restore.unsqueeze(-1).repeat({1, 1, x.size(2)}));
    y = torch::cat({x.index({Slice(), Slice(None, 1), Slice()}), y}, 1) + decoder_pos_embed;
    for (auto& block : *decoder_blocks) y = block->as<Layer>()->forward(y);
    const auto pred = decoder_pred(y).index({Slice(), Slice(1, None), Slice()});
    if (!is_training()) return {pred, mask};
    auto target = patchify(images);
    const auto mean = target.mean(-1, true), var = target.var(-1, true, true);
    target = (target - mean) / (var + 1.e-6).pow(.5);
    const auto loss = (pred - target).pow(2).mean(-1);
    return {pred, mask, (loss * mask).sum() / mask.sum()};
  }
};
TORCH_MODULE(Mae);

}  // namespace
}  // namespace ulp::test::mae_net

ulp::test::Network ulp::test::mae() {
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 3, 16, 16}), torch::rand({batch, 16})};
  };
  return {"mae", [] { return instance(mae_net::Mae(16, 4, 24, 16, 0.6).ptr()); }, inputs};
}
