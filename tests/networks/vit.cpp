// A vision transformer: patches by a strided convolution, a class token, attention written by hand.
#include "networks.h"

namespace ulp::test::vit_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct AttentionImpl : nn::Module {
  int64_t heads;
  double scale;
  nn::Linear qkv{nullptr}, proj{nullptr};
  nn::Dropout attn_drop{0.1};

  AttentionImpl(int64_t dim, int64_t num_heads)
      : heads(num_heads), scale(1.0 / std::sqrt(static_cast<double>(dim / num_heads))) {
    qkv = register_module("qkv", nn::Linear(dim, dim * 3));
    proj = register_module("proj", nn::Linear(dim, dim));
    register_module("attn_drop", attn_drop);
  }
  Tensor forward(Tensor x) {
    auto B = x.size(0), N = x.size(1), C = x.size(2);
    auto parts = qkv(x).reshape({B, N, 3, heads, C / heads}).permute({2, 0, 3, 1, 4});
    auto q = parts[0], k = parts[1], v = parts[2];
    auto attn = torch::matmul(q, k.transpose(-2, -1)) * scale;
    attn = attn_drop(attn.softmax(-1));
    return proj(torch::matmul(attn, v).transpose(1, 2).reshape({B, N, C}));
  }
};
TORCH_MODULE(Attention);

struct BlockImpl : nn::Module {
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  Attention attn{nullptr};
  nn::Sequential mlp;

  BlockImpl(int64_t dim, int64_t heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({dim})));
    attn = register_module("attn", Attention(dim, heads));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({dim})));
    mlp = register_module("mlp", nn::Sequential(nn::Linear(dim, dim * 4), nn::GELU(), nn::Dropout(0.1),
                                                nn::Linear(dim * 4, dim), nn::Dropout(0.1)));
  }
  Tensor forward(Tensor x) {
    x = x + attn(norm1(x));
    return x + mlp->forward(norm2(x));
  }
};
TORCH_MODULE(Block);

struct VisionTransformerImpl : nn::Module {
  nn::Conv2d patch_embed{nullptr};
  Tensor cls_token, pos_embed;
  nn::Dropout pos_drop{0.1};
  nn::ModuleList blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};

  VisionTransformerImpl(int64_t image, int64_t patch, int64_t dim, int64_t depth, int64_t heads,
                        int64_t classes) {
    const int64_t patches = (image / patch) * (image / patch);
    patch_embed = register_module("patch_embed", nn::Conv2d(nn::Conv2dOptions(3, dim, patch).stride(patch)));
    cls_token = register_parameter("cls_token", torch::randn({1, 1, dim}) * 0.02);
    pos_embed = register_parameter("pos_embed", torch::randn({1, patches + 1, dim}) * 0.02);
    register_module("pos_drop", pos_drop);
    for (int64_t i = 0; i < depth; i++) blocks->push_back(Block(dim, heads));
    register_module("blocks", blocks);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({dim})));
    head = register_module("head", nn::Linear(dim, classes));
  }
  Tensor forward(Tensor x) {
    using namespace torch::indexing;
    const auto B = x.size(0);
    x = patch_embed(x).flatten(2).transpose(1, 2);
    x = torch::cat({cls_token.expand({B, -1, -1}), x}, 1);
    x = pos_drop(x + pos_embed);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(norm(x).index({Slice(), 0}));
  }
};
TORCH_MODULE(VisionTransformer);

}  // namespace
}  // namespace ulp::test::vit_net

ulp::test::Network ulp::test::vit() {
  const auto make = [] { return instance(vit_net::VisionTransformer(32, 8, 32, 2, 4, 10).ptr()); };
  return {"vit", make, normal({{3, 32, 32}})};
}
