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

#include "ulp/models/text_model.h"

namespace ulp::models {

/// Throws Error unless the tokens are int64 (B, S) with 1 <= S <= max_length.
void check_tokens(const char* model, const at::Tensor& tokens, int64_t max_length);
/// Throws Error naming the option unless value is a probability below 1.
void check_rate(const char* model, const char* option, double value);
/// Throws Error unless heads divide the width.
void check_heads(const char* model, int64_t width, int64_t heads);

struct AttentionOptions {
  int64_t heads = 1;
  double dropout = 0;   ///< of the weights; pass 0 outside of training
  bool causal = false;  ///< a position sees itself and what came before
};

/// Multi-head attention over (B, S, width) queries, keys and values, through scaled_dot_product_attention.
/// `mask`, if defined: bool, broadcast to (B, heads, S, S), true where a query may see a key.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& mask, const AttentionOptions& options);

/// The start of BERT and GPT-2: weights of linear layers and embeddings normal with deviation 0.02, biases 0,
/// layer norms 1 and 0.
void init_like_transformers(torch::nn::Module& model);

}  // namespace ulp::models
