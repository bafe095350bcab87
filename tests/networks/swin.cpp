// A Swin-like transformer: attention in windows, cut out by views and shifted by rolling.
#include "networks.h"

namespace ulp::test::swin_net {
namespace {

using torch::Tensor;
using namespace torch::indexing;
namespace nn = torch::nn;

Tensor window_partition(Tensor x, int64_t ws) {
  auto B = x.size(0), H = x.size(1), W = x.size(2), C = x.size(3);
  x = x.view({B, H / ws, ws, W / ws, ws, C});
  return x.permute({0, 1, 3, 2, 4, 5}).contiguous().view({-1, ws, ws, C});
}

Tensor window_reverse(const Tensor& windows, int64_t ws, int64_t H, int64_t W) {
  const int64_t B = windows.size(0) / (H * W / ws / ws);
  auto x = windows.view({B, H / ws, W / ws, ws, ws, -1});
  return x.permute({0, 1, 3, 2, 4, 5}).contiguous().view({B, H, W, -1});
}

struct WindowAttentionImpl : nn::Module {
  int64_t heads, ws;
  nn::Linear qkv{nullptr}, proj{nullptr};
  Tensor table, index;

  WindowAttentionImpl(int64_t dim, int64_t num_heads, int64_t window) : heads(num_heads), ws(window) {
    qkv = register_module("qkv", nn::Linear(dim, dim * 3));
    proj = register_module("proj", nn::Linear(dim, dim));
    table = register_parameter("table", torch::randn({(2 * ws - 1) * (2 * ws - 1), heads}) * 0.02);
    const auto side = torch::arange(ws);
    const auto coords = torch::stack(torch::meshgrid({side, side}, "ij")).flatten(1);
    auto relative = coords.index({Slice(), Slice(), None}) - coords.index({Slice(), None, Slice()});
    relative = relative.permute({1, 2, 0}) + (ws - 1);
    index = register_buffer("index", relative.select(2, 0) * (2 * ws - 1) + relative.select(2, 1));
  }
  Tensor forward(const Tensor& x, const Tensor& mask) {
    auto B_ = x.size(0), N = x.size(1), C = x.size(2);
    auto parts = qkv(x).reshape({B_, N, 3, heads, C / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto attn = torch::matmul(parts[0] * std::pow(C / heads, -0.5), parts[1].transpose(-2, -1));
    auto bias = table.index({index.view(-1)}).view({N, N, -1}).permute({2, 0, 1}).contiguous();
    attn = attn + bias.unsqueeze(0);
    if (mask.defined()) {
      const auto nW = mask.size(0);
      attn = attn.view({B_ / nW, nW, heads, N, N}) + mask.unsqueeze(1).unsqueeze(0);
      attn = attn.view({-1, heads, N, N});
    }
    return proj(torch::matmul(attn.softmax(-1), parts[2]).transpose(1, 2).reshape({B_, N, C}));
  }
};
TORCH_MODULE(WindowAttention);

struct SwinBlockImpl : nn::Module {
  int64_t side, ws, shift;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  WindowAttention attn{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
  Tensor mask;

  SwinBlockImpl(int64_t dim, int64_t heads, int64_t resolution, int64_t window, int64_t shifted)
      : side(resolution), ws(window), shift(shifted) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({dim})));
    attn = register_module("attn", WindowAttention(dim, heads, ws));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({dim})));
    fc1 = register_module("fc1", nn::Linear(dim, 2 * dim));
    fc2 = register_module("fc2", nn::Linear(2 * dim, dim));
    if (shift == 0) return;
    auto regions = torch::zeros({1, side, side, 1});
    const std::vector<Slice> cuts{Slice(0, -ws), Slice(-ws, -shift), Slice(-shift, None)};
    for (size_t h = 0; h < 3; ++h)
      for (size_t w = 0; w < 3; ++w)
        regions.index_put_({Slice(), cuts[h], cuts[w], Slice()}, static_cast<double>(3 * h + w));
    auto windows = window_partition(regions, ws).view({-1, ws * ws});
    auto apart = windows.unsqueeze(1) - windows.unsqueeze(2);
    mask = register_buffer("mask", apart.masked_fill(apart != 0, -100.0));
  }
  Tensor forward(const Tensor& shortcut) {
    auto B = shortcut.size(0), L = shortcut.size(1), C = shortcut.size(2);
    auto x = norm1(shortcut).view({B, side, side, C});
    if (shift > 0) x = torch::roll(x, {-shift, -shift}, {1, 2});
    auto windows = attn(window_partition(x, ws).view({-1, ws * ws, C}), mask);
    x = window_reverse(windows.view({-1, ws, ws, C}), ws, side, side);
    if (shift > 0) x = torch::roll(x, {shift, shift}, {1, 2});
    x = shortcut + x.view({B, L, C});
    return x + fc2(torch::gelu(fc1(norm2(x))));
  }
};
TORCH_MODULE(SwinBlock);

struct SwinImpl : nn::Module {
  nn::Conv2d embed{nullptr};
  nn::Sequential stage1{nullptr};
  nn::Linear merge{nullptr}, head{nullptr};

  SwinImpl() {
    embed = register_module("embed", nn::Conv2d(nn::Conv2dOptions(3, 16, 4).stride(4)));
    stage1 = register_module("stage1", nn::Sequential(SwinBlock(16, 2, 8, 4, 0), SwinBlock(16, 2, 8, 4, 2)));
    merge = register_module("merge", nn::Linear(nn::LinearOptions(64, 32).bias(false)));
    head = register_module("head", nn::Linear(32, 10));
  }
  Tensor forward(Tensor x) {
    x = stage1->forward(embed(x).flatten(2).transpose(1, 2)).view({x.size(0), 8, 8, 16});
    auto even = Slice(0, None, 2), odd = Slice(1, None, 2);
    std::vector<Tensor> corners;
    for (const auto& w : {even, odd})
      for (const auto& h : {even, odd}) corners.push_back(x.index({Slice(), h, w}));
    x = torch::cat(corners, -1);
    x = merge(x.view({x.size(0), -1, 64}));
    return head(torch::gelu(x).mean(1));
  }
};
TORCH_MODULE(Swin);

}  // namespace
}  // namespace ulp::test::swin_net

ulp::test::Network ulp::test::swin() {
  return {"swin", [] { return instance(swin_net::Swin().ptr()); }, normal({{3, 32, 32}})};
}
