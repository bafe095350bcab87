// Pieces that the text networks share; not installed.
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>

#include "ulp/models/layers.h"
#include "ulp/models/text_model.h"

namespace ulp::models {

/// Throws Error unless the tokens are int64 (B, S) with 1 <= S <= max_length.
void check_tokens(const char* model, const at::Tensor& tokens, int64_t max_length);
/// Throws Error naming the option unless value is a probability below 1.
void check_rate(const char* model, const char* option, double value);
/// Throws Error unless heads divide the width.
void check_heads(const char* model, int64_t width, int64_t heads);

/// Throws Error naming the option of an encoder that makes no sense.
template <typename Config>
void check_encoder(const char* model, const Config& config) {
  check_option(model, "vocab_size", config.vocab_size);
  check_option(model, "max_length", config.max_length);
  check_option(model, "width", config.width);
  check_option(model, "layers", config.layers);
  check_option(model, "intermediate", config.intermediate);
  check_option(model, "num_classes", config.num_classes);
  check_option(model, "padding_token", config.padding_token, -1);
  check_heads(model, config.width, config.heads);
  check_rate(model, "dropout", config.dropout);
  check_rate(model, "attention_dropout", config.attention_dropout);
}

/// True where a token (B, S) is no padding, as attend() takes it; undefined where nothing is padding (-1).
at::Tensor padding_mask(const at::Tensor& tokens, int64_t padding_token);

/// An encoder's layers one after the other, registered as "layer".
template <typename Layer>
struct LayerStack final : torch::nn::Module {
  template <typename Config>
  explicit LayerStack(const Config& config) : layers(register_module("layer", torch::nn::ModuleList())) {
    for (int64_t i = 0; i < config.layers; ++i) layers->push_back(std::make_shared<Layer>(config));
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& mask) {
    for (const auto& layer : *layers) x = layer->template as<Layer>()->forward(x, mask);
    return x;
  }

  torch::nn::ModuleList layers;
};

/// The layer norms of BERT and DistilBERT.
torch::nn::LayerNorm bert_norm(int64_t width);

/// The beginning of BERT and of DistilBERT, which has no types of tokens: words and places, normalised.
struct BertEmbeddings final : torch::nn::Module {
  template <typename Config>
  BertEmbeddings(const Config& config, int64_t token_types)
      : BertEmbeddings(config.vocab_size, config.max_length, config.width, config.dropout, token_types) {}
  BertEmbeddings(int64_t vocab_size, int64_t max_length, int64_t width, double rate, int64_t token_types);
  /// int64 (B, S) to (B, S, width).
  at::Tensor forward(const at::Tensor& tokens);

  torch::nn::Embedding words, positions, types{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};

struct AttentionOptions {
  int64_t heads = 1;
  double dropout = 0;   ///< of the weights; pass 0 outside of training
  bool causal = false;  ///< a position sees itself and what came before
};

/// Multi-head attention over (B, S, width) queries, keys and values, through scaled_dot_product_attention.
/// `mask`, if defined: bool, broadcast to (B, heads, S, S), true where a query may see a key.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& mask, const AttentionOptions& options);

/// Attention over three linear layers of the same input, registered under these names.
struct SelfAttention : torch::nn::Module {
  template <typename Config>
  SelfAttention(const Config& config, const std::array<const char*, 3>& names)
      : torch::nn::Module(),  // clang 16 warns without
        query(register_module(names[0], torch::nn::Linear(config.width, config.width))),
        key(register_module(names[1], torch::nn::Linear(config.width, config.width))),
        value(register_module(names[2], torch::nn::Linear(config.width, config.width))),
        heads(config.heads),
        dropout(config.attention_dropout) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return attend(query(x), key(x), value(x), mask,
                  {.heads = heads, .dropout = is_training() ? dropout : 0.0});
  }

  torch::nn::Linear query, key, value;
  int64_t heads;
  double dropout;
};

/// The start of BERT and GPT-2: weights of linear layers and embeddings normal with deviation 0.02, biases 0,
/// layer norms 1 and 0.
void init_like_transformers(torch::nn::Module& model);

}  // namespace ulp::models
