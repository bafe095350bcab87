// The U-Net of a diffusion model: a time that is embedded by sines, convolutions with standardised weights,
// linear attention, and a list of lists of layers.
#include "networks.h"

namespace ulp::test::ddpm_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct StandardConvImpl : nn::Conv2dImpl {
  using Conv2dImpl::Conv2dImpl;
  Tensor forward(const Tensor& x) {
    const auto mean = weight.mean({1, 2, 3}, /*keepdim=*/true);
    const auto var = weight.var({1, 2, 3}, /*unbiased=*/false, /*keepdim=*/true);
    return torch::conv2d(x, (weight - mean) * (var + 1e-5).rsqrt(), bias, options.stride(), 1);
  }
};
TORCH_MODULE(StandardConv);

/// f(x) + x for any module.
template <typename Inner>
struct ResidualImpl : nn::Module {
  Inner f{nullptr};
  explicit ResidualImpl(Inner module) { f = register_module("f", module); }
  Tensor forward(const Tensor& x) { return f->forward(x) + x; }
};

struct BlockImpl : nn::Module {
  StandardConv conv{nullptr};
  nn::GroupNorm norm{nullptr};
  BlockImpl(int64_t in, int64_t out) {
    conv = register_module("conv", StandardConv(nn::Conv2dOptions(in, out, 3).padding(1)));
    norm = register_module("norm", nn::GroupNorm(4, out));
  }
  Tensor forward(const Tensor& x,
                 const std::optional<std::pair<Tensor, Tensor>>& scale_shift = std::nullopt) {
    auto y = norm(conv(x));
    if (scale_shift) y = y * (scale_shift->first + 1) + scale_shift->second;
    return F::silu(y);
  }
};
TORCH_MODULE(Block);

struct ResnetBlockImpl : nn::Module {
  nn::Sequential mlp;
  Block block1{nullptr}, block2{nullptr};
  nn::Sequential shortcut;

  ResnetBlockImpl(int64_t in, int64_t out, int64_t time) {
    mlp = register_module("mlp", nn::Sequential(nn::SiLU(), nn::Linear(time, out * 2)));
    block1 = register_module("block1", Block(in, out));
    block2 = register_module("block2", Block(out, out));
    if (in != out) shortcut->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 1)));
    register_module("shortcut", shortcut);
  }
  Tensor forward(const Tensor& x, const Tensor& time) {
    const auto embedded = mlp->forward(time).unsqueeze(-1).unsqueeze(-1).chunk(2, 1);
    auto h = block1(x, std::make_pair(embedded[0], embedded[1]));
    h = block2(h);
    return h + (shortcut->is_empty() ? x : shortcut->forward(x));
  }
};
TORCH_MODULE(ResnetBlock);

struct LinearAttentionImpl : nn::Module {
  int64_t heads, size;
  nn::Conv2d to_qkv{nullptr}, to_out{nullptr};

  LinearAttentionImpl(int64_t dim, int64_t count, int64_t head) : heads(count), size(head) {
    to_qkv = register_module("to_qkv", nn::Conv2d(nn::Conv2dOptions(dim, heads * size * 3, 1).bias(false)));
    to_out = register_module("to_out", nn::Conv2d(nn::Conv2dOptions(heads * size, dim, 1)));
  }
  Tensor forward(const Tensor& x) {
    const auto b = x.size(0), h = x.size(2), w = x.size(3);
    auto qkv = to_qkv(x).chunk(3, 1);
    for (auto& t : qkv) t = t.view({b, heads, size, h * w});
    const auto q = qkv[0].softmax(-2) * std::pow(size, -0.5), k = qkv[1].softmax(-1), v = qkv[2] / (h * w);
    const auto context = torch::matmul(k, v.transpose(-1, -2));
    const auto out = torch::matmul(context.transpose(-1, -2), q);
    return to_out(out.contiguous().view({b, heads * size, h, w}));
  }
};
TORCH_MODULE(LinearAttention);
using ResidualAttention = nn::ModuleHolder<ResidualImpl<LinearAttention>>;

struct UnetImpl : nn::Module {
  static constexpr int64_t kTime = 16;
  nn::Conv2d init_conv{nullptr}, final_conv{nullptr};
  nn::Sequential time_mlp;
  nn::ModuleList downs, ups;
  ResnetBlock middle{nullptr}, final_block{nullptr};

  explicit UnetImpl(const std::vector<int64_t>& dims) {
    init_conv = register_module("init_conv", nn::Conv2d(nn::Conv2dOptions(3, dims[0], 3).padding(1)));
    time_mlp = register_module(
        "time_mlp", nn::Sequential(nn::Linear(kTime, 2 * kTime), nn::GELU(), nn::Linear(2 * kTime, kTime)));
    for (size_t i = 0; i + 1 < dims.size(); ++i) {
      const auto in = dims[i], out = dims[i + 1];
      downs->push_back(nn::ModuleList(ResnetBlock(in, in, kTime),
                                      ResidualAttention(LinearAttention(in, 2, 4)),
                                      nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(2).padding(1))));
      ups->insert(
          0, nn::ModuleList(
                 ResnetBlock(out + in, in, kTime),
                 nn::Upsample(
                     nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)),
                 nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1))));
    }
    register_module("downs", downs);
    register_module("ups", ups);
    middle = register_module("middle", ResnetBlock(dims.back(), dims.back(), kTime));
    final_block = register_module("final_block", ResnetBlock(2 * dims[0], dims[0], kTime));
    final_conv = register_module("final_conv", nn::Conv2d(nn::Conv2dOptions(dims[0], 3, 1)));
  }
  static Tensor sinusoidal(const Tensor& time) {
    const int64_t half = kTime / 2;
    auto freqs = torch::exp(torch::arange(half, torch::TensorOptions(torch::kFloat).device(time.device())) *
                            -(std::log(10000.0) / static_cast<double>(half - 1)));
    const auto angles = time.unsqueeze(1).to(torch::kFloat) * freqs.unsqueeze(0);
    return torch::cat({angles.sin(), angles.cos()}, -1);
  }
  Tensor forward(Tensor x, Tensor time) {
    x = init_conv(x);
    const auto r = x.clone();
    const auto t = time_mlp->forward(sinusoidal(time));
    std::vector<Tensor> skips;
    for (const auto& stage : *downs) {
      auto& layers = *stage->as<nn::ModuleList>();
      x = layers[0]->as<ResnetBlock>()->forward(x, t);
      x = layers[1]->as<ResidualImpl<LinearAttention>>()->forward(x);
      skips.push_back(x);
      x = layers[2]->as<nn::Conv2d>()->forward(x);
    }
    x = middle(x, t);
    for (const auto& stage : *ups) {
      auto& layers = *stage->as<nn::ModuleList>();
      x = layers[2]->as<nn::Conv2d>()->forward(layers[1]->as<nn::Upsample>()->forward(x));
      x = torch::cat({x, skips.back()}, 1);
      skips.pop_back();
      x = layers[0]->as<ResnetBlock>()->forward(x, t);
    }
    return final_conv(final_block(torch::cat({x, r}, 1), t));
  }
};
TORCH_MODULE(Unet);

}  // namespace
}  // namespace ulp::test::ddpm_net

ulp::test::Network ulp::test::ddpm() {
  const auto make = [] { return instance(ddpm_net::Unet(std::vector<int64_t>{8, 12, 16}).ptr()); };
  const auto inputs = [](int64_t batch) {
    return std::vector<torch::Tensor>{torch::randn({batch, 3, 16, 16}), torch::randint(0, 1000, {batch})};
  };
  return {"ddpm", make, inputs};
}
