#include "ulp/models/text_layers.h"

#include "ulp/base/error.h"

namespace ulp::models {

void check_tokens(const char* model, const at::Tensor& tokens, int64_t max_length) {
  if (tokens.scalar_type() == at::kLong && tokens.dim() == 2 && tokens.size(1) >= 1 &&
      tokens.size(1) <= max_length) {
    return;
  }
  fail("models.forward", "expected int64 tokens of shape (B, S) with S from 1 to ", max_length, " for '",
       model, "', got ", tokens.toString(), " of ", tokens.sizes());
}

void check_rate(const char* model, const char* option, double value) {
  if (value >= 0 && value < 1) return;
  fail("models.make_text_model", "expected ", option, " in [0, 1) for '", model, "', got ", value);
}

void check_heads(const char* model, int64_t width, int64_t heads) {
  if (heads >= 1 && width % heads == 0) return;
  fail("models.make_text_model", "expected heads that divide the width ", width, " of '", model, "', got ",
       heads);
}

at::Tensor padding_mask(const at::Tensor& tokens, int64_t padding_token) {
  if (padding_token < 0) return {};
  return tokens.ne(padding_token).unsqueeze(1).unsqueeze(1);
}

torch::nn::LayerNorm bert_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-12));
}

BertEmbeddings::BertEmbeddings(int64_t vocab_size, int64_t max_length, int64_t width, double rate,
                               int64_t token_types)
    : words(register_module("word_embeddings", torch::nn::Embedding(vocab_size, width))),
      positions(register_module("position_embeddings", torch::nn::Embedding(max_length, width))) {
  if (token_types > 0)
    types = register_module("token_type_embeddings", torch::nn::Embedding(token_types, width));
  norm = register_module("LayerNorm", bert_norm(width));
  dropout = register_module("dropout", torch::nn::Dropout(rate));
}

at::Tensor BertEmbeddings::forward(const at::Tensor& tokens) {
  at::Tensor fixed = positions->weight.narrow(0, 0, tokens.size(1));
  if (types) fixed = fixed + types->weight.select(0, 0);  // one text a sample: every token is of type 0
  return dropout(norm(words(tokens) + fixed));
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& mask, const AttentionOptions& options) {
  const auto split = [&](const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), options.heads, x.size(2) / options.heads}).transpose(1, 2);
  };
  const auto attn_mask = mask.defined() ? std::optional(mask) : std::nullopt;
  const at::Tensor mixed = at::scaled_dot_product_attention(split(query), split(key), split(value), attn_mask,
                                                            options.dropout, options.causal);
  return mixed.transpose(1, 2).flatten(2);
}

void init_like_transformers(torch::nn::Module& model) {
  constexpr double kDeviation = 0.02;
  torch::NoGradGuard no_grad;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* linear = dynamic_cast<torch::nn::LinearImpl*>(module.get())) {
      linear->weight.normal_(0, kDeviation);
      if (linear->bias.defined()) linear->bias.zero_();
    } else if (auto* table = dynamic_cast<torch::nn::EmbeddingImpl*>(module.get())) {
      table->weight.normal_(0, kDeviation);
    }
  }
}

}  // namespace ulp::models
