// A small GPT: learned positions, attention with a causal mask made on the fly, the head tied to the
// embedding.
#include "networks.h"

namespace ulp::test::gpt_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Config {
  int64_t vocab = 64, block = 16, width = 32, heads = 4, layers = 2;
};

struct CausalSelfAttentionImpl : nn::Module {
  nn::Linear c_attn{nullptr}, c_proj{nullptr};
  nn::Dropout attn_dropout{0.1}, resid_dropout{0.1};
  int64_t heads;

  explicit CausalSelfAttentionImpl(const Config& config) : heads(config.heads) {
    c_attn = register_module("c_attn", nn::Linear(config.width, 3 * config.width));
    c_proj = register_module("c_proj", nn::Linear(config.width, config.width));
    register_module("attn_dropout", attn_dropout);
    register_module("resid_dropout", resid_dropout);
  }
  Tensor forward(const Tensor& x) {
    const auto B = x.size(0), T = x.size(1), C = x.size(2);
    auto qkv = c_attn(x).split(C, 2);
    auto q = qkv[0].view({B, T, heads, C / heads}).transpose(1, 2);
    auto k = qkv[1].view({B, T, heads, C / heads}).transpose(1, 2);
    auto v = qkv[2].view({B, T, heads, C / heads}).transpose(1, 2);
    auto att = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(k.size(-1)));
    auto future = torch::ones({T, T}, torch::TensorOptions().dtype(torch::kBool).device(x.device())).triu(1);
    att = att.masked_fill(future, -std::numeric_limits<float>::infinity());
    att = attn_dropout(F::softmax(att, F::SoftmaxFuncOptions(-1)));
    return resid_dropout(c_proj(att.matmul(v).transpose(1, 2).contiguous().view({B, T, C})));
  }
};
TORCH_MODULE(CausalSelfAttention);

struct BlockImpl : nn::Module {
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  CausalSelfAttention attn{nullptr};
  nn::Linear c_fc{nullptr}, c_proj{nullptr};

  explicit BlockImpl(const Config& config) {
    ln_1 = register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    attn = register_module("attn", CausalSelfAttention(config));
    ln_2 = register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    c_fc = register_module("c_fc", nn::Linear(config.width, 4 * config.width));
    c_proj = register_module("c_proj", nn::Linear(4 * config.width, config.width));
  }
  Tensor forward(Tensor x) {
    x = x + attn(ln_1(x));
    return x + c_proj(F::gelu(c_fc(ln_2(x)), F::GELUFuncOptions().approximate("tanh")));
  }
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::Dropout drop{0.1};
  nn::ModuleList h;
  nn::LayerNorm ln_f{nullptr};

  explicit GptImpl(const Config& config) {
    wte = register_module("wte", nn::Embedding(config.vocab, config.width));
    wpe = register_module("wpe", nn::Embedding(config.block, config.width));
    register_module("drop", drop);
    for (int64_t i = 0; i < config.layers; ++i) h->push_back(Block(config));
    register_module("h", h);
    ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    const torch::NoGradGuard no_grad;
    for (const auto& p : named_parameters())
      if (p.value().dim() == 2) nn::init::normal_(p.value(), 0.0, 0.2);
  }
  Tensor forward(const Tensor& idx) {
    auto pos = torch::arange(0, idx.size(1), idx.options()).unsqueeze(0);
    auto x = drop(wte(idx) + wpe(pos));
    for (auto& block : *h) x = block->as<Block>()->forward(x);
    return F::linear(ln_f(x), wte->weight);
  }
};
TORCH_MODULE(Gpt);

}  // namespace
}  // namespace ulp::test::gpt_net

ulp::test::Network ulp::test::gpt() {
  return {"gpt", [] { return instance(gpt_net::Gpt(gpt_net::Config()).ptr()); }, ids(64, {16})};
}
