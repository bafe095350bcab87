// A language model of the Llama family: RMS norm, rotary positions, shared keys and values, SwiGLU.
#include "networks.h"

namespace ulp::test::llama_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct RMSNormImpl : nn::Module {
  Tensor weight;
  explicit RMSNormImpl(int64_t dim) { weight = register_parameter("weight", torch::ones(dim)); }
  Tensor forward(const Tensor& x) { return x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight; }
};
TORCH_MODULE(RMSNorm);

Tensor rotate_half(const Tensor& x) {
  const auto half = x.chunk(2, -1);
  return torch::cat({-half[1], half[0]}, -1);
}

nn::Linear plain(int64_t in, int64_t out) {
  return nn::Linear(nn::LinearOptions(in, out).bias(false));
}

struct AttentionImpl : nn::Module {
  int64_t heads, kv_heads, size;
  nn::Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr};

  AttentionImpl(int64_t dim, int64_t heads, int64_t kv_heads)
      : heads(heads), kv_heads(kv_heads), size(dim / heads) {
    wq = register_module("wq", plain(dim, heads * size));
    wk = register_module("wk", plain(dim, kv_heads * size));
    wv = register_module("wv", plain(dim, kv_heads * size));
    wo = register_module("wo", plain(heads * size, dim));
  }
  Tensor repeat_kv(const Tensor& x) const {
    const auto b = x.size(0), t = x.size(2);
    return x.unsqueeze(2).expand({b, kv_heads, heads / kv_heads, t, size}).reshape({b, heads, t, size});
  }
  Tensor forward(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& mask) {
    const auto b = x.size(0), t = x.size(1);
    auto q = wq(x).view({b, t, heads, size}).transpose(1, 2);
    auto k = wk(x).view({b, t, kv_heads, size}).transpose(1, 2);
    auto v = wv(x).view({b, t, kv_heads, size}).transpose(1, 2);
    q = q * cos + rotate_half(q) * sin;
    k = k * cos + rotate_half(k) * sin;
    auto scores = torch::matmul(q, repeat_kv(k).transpose(2, 3)) / std::sqrt(static_cast<double>(size));
    auto weights = torch::softmax(scores + mask, -1);
    return wo(torch::matmul(weights, repeat_kv(v)).transpose(1, 2).contiguous().view({b, t, -1}));
  }
};
TORCH_MODULE(Attention);

struct LayerImpl : nn::Module {
  RMSNorm attention_norm{nullptr}, ffn_norm{nullptr};
  Attention attention{nullptr};
  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};

  LayerImpl(int64_t dim, int64_t heads, int64_t kv_heads, int64_t hidden) {
    attention_norm = register_module("attention_norm", RMSNorm(dim));
    attention = register_module("attention", Attention(dim, heads, kv_heads));
    ffn_norm = register_module("ffn_norm", RMSNorm(dim));
    w1 = register_module("w1", plain(dim, hidden));
    w2 = register_module("w2", plain(hidden, dim));
    w3 = register_module("w3", plain(dim, hidden));
  }
  Tensor forward(Tensor x, const Tensor& cos, const Tensor& sin, const Tensor& mask) {
    x = x + attention(attention_norm(x), cos, sin, mask);
    auto y = ffn_norm(x);
    return x + w2(torch::silu(w1(y)) * w3(y));
  }
};
TORCH_MODULE(Layer);

struct LlamaImpl : nn::Module {
  nn::Embedding tokens{nullptr};
  std::vector<Layer> layers;
  RMSNorm norm{nullptr};
  nn::Linear output{nullptr};
  Tensor cos, sin;

  LlamaImpl(int64_t vocab, int64_t dim, int64_t heads, int64_t longest) {
    tokens = register_module("tokens", nn::Embedding(vocab, dim));
    for (int i = 0; i < 2; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Layer(dim, heads, heads / 2, 2 * dim)));
    norm = register_module("norm", RMSNorm(dim));
    output = register_module("output", plain(dim, vocab));
    const auto size = dim / heads;
    auto inv_freq = 1.0 / torch::pow(10000.0, torch::arange(0, size, 2).to(torch::kFloat) / size);
    auto angles = torch::outer(torch::arange(longest).to(torch::kFloat), inv_freq);
    angles = torch::cat({angles, angles}, -1);
    cos = register_buffer("cos", angles.cos());
    sin = register_buffer("sin", angles.sin());
  }
  Tensor forward(const Tensor& ids) {
    const auto t = ids.size(1);
    auto x = tokens(ids);
    auto mask = torch::full({t, t}, -std::numeric_limits<double>::infinity(), x.options()).triu(1);
    auto c = cos.slice(0, 0, t), s = sin.slice(0, 0, t);
    for (auto& layer : layers) x = layer->forward(x, c, s, mask);
    return output(norm(x));
  }
};
TORCH_MODULE(Llama);

}  // namespace
}  // namespace ulp::test::llama_net

ulp::test::Network ulp::test::llama() {
  return {"llama", [] { return instance(llama_net::Llama(64, 32, 4, 24).ptr()); }, ids(64, {14})};
}
