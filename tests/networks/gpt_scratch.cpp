// A GPT as books teach it: every part is written out, also the norms and the activation.
#include "networks.h"

namespace ulp::test::gpt_scratch_net {
namespace {

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct GptConfig {
  int64_t vocab_size = 60, context_length = 16, emb_dim = 32, n_heads = 4, n_layers = 2;
  double drop_rate = 0.1;
  bool qkv_bias = false;
};

class LayerNorm : public nn::Module {
 public:
  explicit LayerNorm(int64_t emb_dim)
      : scale(register_parameter("scale", torch::ones({emb_dim}))),
        shift(register_parameter("shift", torch::zeros({emb_dim}))) {}
  Tensor forward(Tensor x) {
    Tensor mean = x.mean(-1, true);
    Tensor var = x.var(-1, /*unbiased=*/false, /*keepdim=*/true);
    Tensor norm_x = (x - mean) / torch::sqrt(var + eps);
    return scale * norm_x + shift;
  }

 private:
  double eps = 1e-5;
  Tensor scale, shift;
};

class Gelu : public nn::Module {
 public:
  Tensor forward(Tensor x) {
    return 0.5 * x *
           (1 + torch::tanh(torch::sqrt(torch::tensor(2.0 / M_PI)) * (x + 0.044715 * torch::pow(x, 3))));
  }
};

class MultiHeadAttention : public nn::Module {
 public:
  explicit MultiHeadAttention(const GptConfig& cfg)
      : d_out(cfg.emb_dim), num_heads(cfg.n_heads), head_dim(cfg.emb_dim / cfg.n_heads) {
    const auto options = nn::LinearOptions(cfg.emb_dim, d_out).bias(cfg.qkv_bias);
    W_query = register_module("W_query", nn::Linear(options));
    W_key = register_module("W_key", nn::Linear(options));
    W_value = register_module("W_value", nn::Linear(options));
    out_proj = register_module("out_proj", nn::Linear(d_out, d_out));
    dropout = register_module("dropout", nn::Dropout(cfg.drop_rate));
    mask = register_buffer("mask", torch::triu(torch::ones({cfg.context_length, cfg.context_length}), 1));
  }
  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), num_tokens = x.size(1);
    Tensor keys = W_key(x).view({b, num_tokens, num_heads, head_dim}).transpose(1, 2);
    Tensor queries = W_query(x).view({b, num_tokens, num_heads, head_dim}).transpose(1, 2);
    Tensor values = W_value(x).view({b, num_tokens, num_heads, head_dim}).transpose(1, 2);
    Tensor attn_scores = queries.matmul(keys.transpose(2, 3));
    Tensor mask_bool = mask.to(torch::kBool).index({Slice(None, num_tokens), Slice(None, num_tokens)});
    attn_scores.masked_fill_(mask_bool, -INFINITY);
    Tensor attn_weights = torch::softmax(attn_scores / std::pow(keys.size(-1), 0.5), -1);
    attn_weights = dropout(attn_weights);
    Tensor context_vec = attn_weights.matmul(values).transpose(1, 2);
    return out_proj(context_vec.contiguous().view({b, num_tokens, d_out}));
  }

 private:
  int64_t d_out, num_heads, head_dim;
  nn::Linear W_query{nullptr}, W_key{nullptr}, W_value{nullptr}, out_proj{nullptr};
  nn::Dropout dropout{nullptr};
  Tensor mask;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(const GptConfig& cfg) {
    att = register_module("att", std::make_shared<MultiHeadAttention>(cfg));
    ff = nn::Sequential(nn::Linear(cfg.emb_dim, 4 * cfg.emb_dim), Gelu(),
                        nn::Linear(4 * cfg.emb_dim, cfg.emb_dim));
    register_module("ff", ff);
    norm1 = register_module("norm1", std::make_shared<LayerNorm>(cfg.emb_dim));
    norm2 = register_module("norm2", std::make_shared<LayerNorm>(cfg.emb_dim));
    drop_shortcut = register_module("drop_shortcut", nn::Dropout(cfg.drop_rate));
  }
  Tensor forward(Tensor x) {
    Tensor shortcut = x;
    x = norm1->forward(x);
    x = att->forward(x);
    x = drop_shortcut(x);
    x = x + shortcut;
    shortcut = x;
    x = norm2->forward(x);
    x = ff->forward(x);
    x = drop_shortcut(x);
    return x + shortcut;
  }

 private:
  std::shared_ptr<MultiHeadAttention> att;
  nn::Sequential ff;
  std::shared_ptr<LayerNorm> norm1, norm2;
  nn::Dropout drop_shortcut{nullptr};
};

class GptModel : public nn::Module {
 public:
  explicit GptModel(const GptConfig& cfg) {
    tok_emb = register_module("tok_emb", nn::Embedding(cfg.vocab_size, cfg.emb_dim));
    pos_emb = register_module("pos_emb", nn::Embedding(cfg.context_length, cfg.emb_dim));
    drop_emb = register_module("drop_emb", nn::Dropout(cfg.drop_rate));
    for (int64_t i = 0; i < cfg.n_layers; ++i) trf_blocks->push_back(TransformerBlock(cfg));
    register_module("trf_blocks", trf_blocks);
    final_norm = register_module("final_norm", std::make_shared<LayerNorm>(cfg.emb_dim));
    out_head =
        register_module("out_head", nn::Linear(nn::LinearOptions(cfg.emb_dim, cfg.vocab_size).bias(false)));
  }
  Tensor forward(Tensor in_idx) {
    Tensor tok_embeds = tok_emb(in_idx);
    Tensor pos_embeds = pos_emb(torch::arange(in_idx.size(1), in_idx.device()).to(torch::kLong));
    Tensor x = drop_emb(tok_embeds + pos_embeds);
    x = trf_blocks->forward(x);
    return out_head(final_norm->forward(x));
  }

 private:
  nn::Embedding tok_emb{nullptr}, pos_emb{nullptr};
  nn::Dropout drop_emb{nullptr};
  nn::Sequential trf_blocks;
  std::shared_ptr<LayerNorm> final_norm;
  nn::Linear out_head{nullptr};
};

}  // namespace
}  // namespace ulp::test::gpt_scratch_net

ulp::test::Network ulp::test::gpt_scratch() {
  const auto make = [] {
    return instance(std::make_shared<gpt_scratch_net::GptModel>(gpt_scratch_net::GptConfig{}));
  };
  return {"gpt_scratch", make, ids(60, {11})};
}
