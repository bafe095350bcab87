// Llama as it was published: positions turn complex numbers, a mask for texts of more than one token, keys
// and values repeated for groups of heads.
#include "networks.h"

namespace ulp::test::llama_complex_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ModelArgs {
  int64_t dim = 32, n_layers = 2, n_heads = 4, n_kv_heads = 2, vocab_size = 64, multiple_of = 8,
          max_seq_len = 16;
  double norm_eps = 1e-5;
};

struct RMSNormImpl : nn::Module {
  double eps;
  Tensor weight;
  RMSNormImpl(int64_t dim, double epsilon) : eps(epsilon) {
    weight = register_parameter("weight", torch::ones({dim}));
  }
  Tensor norm(const Tensor& x) const { return x * torch::rsqrt(x.pow(2).mean({-1}, true) + eps); }
  Tensor forward(const Tensor& x) { return norm(x.to(torch::kFloat)).type_as(x) * weight; }
};
TORCH_MODULE(RMSNorm);

Tensor precompute_freqs_cis(int64_t dim, int64_t end, double theta = 10000.0) {
  const auto freqs =
      1.0 / torch::pow(theta, torch::arange(0, dim, 2).slice(0, 0, dim / 2).to(torch::kFloat) / dim);
  const auto t = torch::arange(end, freqs.device());
  const auto angles = torch::outer(t, freqs).to(torch::kFloat);
  return torch::polar(torch::ones_like(angles), angles);
}

Tensor apply_rotary_emb(const Tensor& x, const Tensor& freqs_cis) {
  const auto pairs =
      torch::view_as_complex(x.to(torch::kFloat).reshape({x.size(0), x.size(1), x.size(2), -1, 2}));
  const auto turned = pairs * freqs_cis.view({1, x.size(1), 1, -1});
  return torch::view_as_real(turned).flatten(3).type_as(x);
}

struct AttentionImpl : nn::Module {
  int64_t n_heads, n_kv_heads, n_rep, head_dim;
  nn::Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr};
  explicit AttentionImpl(const ModelArgs& args)
      : n_heads(args.n_heads),
        n_kv_heads(args.n_kv_heads),
        n_rep(n_heads / n_kv_heads),
        head_dim(args.dim / args.n_heads) {
    const auto layer = [](int64_t in, int64_t out) {
      return nn::Linear(nn::LinearOptions(in, out).bias(false));
    };
    wq = register_module("wq", layer(args.dim, n_heads * head_dim));
    wk = register_module("wk", layer(args.dim, n_kv_heads * head_dim));
    wv = register_module("wv", layer(args.dim, n_kv_heads * head_dim));
    wo = register_module("wo", layer(n_heads * head_dim, args.dim));
  }
  Tensor forward(const Tensor& x, const Tensor& freqs_cis, const std::optional<Tensor>& mask) {
    const auto bsz = x.size(0), seqlen = x.size(1);
    auto xq = wq(x).view({bsz, seqlen, n_heads, head_dim});
    auto xk = wk(x).view({bsz, seqlen, n_kv_heads, head_dim});
    auto xv = wv(x).view({bsz, seqlen, n_kv_heads, head_dim});
    xq = apply_rotary_emb(xq, freqs_cis).transpose(1, 2);
    xk = torch::repeat_interleave(apply_rotary_emb(xk, freqs_cis), n_rep, 2).transpose(1, 2);
    xv = torch::repeat_interleave(xv, n_rep, 2).transpose(1, 2);
    auto scores = torch::matmul(xq, xk.transpose(2, 3)) / std::sqrt(head_dim);
    if (mask.has_value()) scores = scores + *mask;
    scores = F::softmax(scores.to(torch::kFloat), -1).type_as(xq);
    return wo(torch::matmul(scores, xv).transpose(1, 2).contiguous().view({bsz, seqlen, -1}));
  }
};
TORCH_MODULE(Attention);

struct TransformerBlockImpl : nn::Module {
  Attention attention{nullptr};
  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
  RMSNorm attention_norm{nullptr}, ffn_norm{nullptr};
  explicit TransformerBlockImpl(const ModelArgs& args) {
    auto hidden = 2 * (4 * args.dim) / 3;
    hidden = args.multiple_of * ((hidden + args.multiple_of - 1) / args.multiple_of);
    attention = register_module("attention", Attention(args));
    w1 = register_module("w1", nn::Linear(nn::LinearOptions(args.dim, hidden).bias(false)));
    w2 = register_module("w2", nn::Linear(nn::LinearOptions(hidden, args.dim).bias(false)));
    w3 = register_module("w3", nn::Linear(nn::LinearOptions(args.dim, hidden).bias(false)));
    attention_norm = register_module("attention_norm", RMSNorm(args.dim, args.norm_eps));
    ffn_norm = register_module("ffn_norm", RMSNorm(args.dim, args.norm_eps));
  }
  Tensor forward(const Tensor& x, const Tensor& freqs_cis, const std::optional<Tensor>& mask) {
    const auto h = x + attention(attention_norm(x), freqs_cis, mask);
    const auto y = ffn_norm(h);
    return h + w2(F::silu(w1(y)) * w3(y));
  }
};
TORCH_MODULE(TransformerBlock);

struct TransformerImpl : nn::Module {
  ModelArgs params;
  nn::Embedding tok_embeddings{nullptr};
  nn::ModuleList layers;
  RMSNorm norm{nullptr};
  nn::Linear output{nullptr};
  Tensor freqs_cis;  // no buffer

  explicit TransformerImpl(const ModelArgs& args) : params(args) {
    tok_embeddings = register_module("tok_embeddings", nn::Embedding(params.vocab_size, params.dim));
    for (int64_t i = 0; i < params.n_layers; ++i) layers->push_back(TransformerBlock(params));
    register_module("layers", layers);
    norm = register_module("norm", RMSNorm(params.dim, params.norm_eps));
    output =
        register_module("output", nn::Linear(nn::LinearOptions(params.dim, params.vocab_size).bias(false)));
    freqs_cis = precompute_freqs_cis(params.dim / params.n_heads, params.max_seq_len * 2);
  }
  Tensor forward(const Tensor& tokens) {
    const auto seqlen = tokens.size(1);
    auto h = tok_embeddings(tokens);
    const auto freqs = freqs_cis.slice(0, 0, seqlen).to(h.device());
    std::optional<Tensor> mask;
    if (seqlen > 1) {
      mask = torch::full({seqlen, seqlen}, -std::numeric_limits<float>::infinity(), tokens.device());
      mask = torch::triu(*mask, 1).type_as(h);
    }
    for (const auto& layer : *layers) h = layer->as<TransformerBlock>()->forward(h, freqs, mask);
    return output(norm(h)).to(torch::kFloat);
  }
};
TORCH_MODULE(Transformer);

}  // namespace
}  // namespace ulp::test::llama_complex_net

ulp::test::Network ulp::test::llama_complex() {
  const auto make = [] {
    return instance(llama_complex_net::Transformer(llama_complex_net::ModelArgs{}).ptr());
  };
  return {"llama_complex", make, ids(64, {10})};
}
