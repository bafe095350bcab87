// GPT-2 (Radford et al. 2019): a causal language model with the parameter names of its published weights.
#pragma once

#include <memory>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ULP_API Gpt2Config {
  int64_t vocab_size = 50257;
  int64_t max_length = 1024;  ///< "n_positions"
  int64_t width = 768;        ///< "n_embd"; the feed-forward part is 4 times as wide
  int64_t layers = 12;
  int64_t heads = 12;
  double dropout = 0.1;            ///< of the embeddings and of each block's two branches
  double attention_dropout = 0.1;  ///< of attention weights; above 0 LibTorch's CPU takes its slow path

  /// The smallest published one: 124,439,808 parameters.
  static Gpt2Config small();
  /// The next: 354,823,168 parameters.
  static Gpt2Config medium();
  /// Over bytes (2 layers of 128), without dropout: trains on text files in seconds.
  static Gpt2Config tiny();
  /// Throws Error naming the field.
  void validate() const;
};

/// Names: wte.weight, wpe.weight, h.0.ln_1.weight, h.0.attn.c_attn.weight, h.0.mlp.c_proj.bias, ln_f.weight.
/// The c_ weights are stored (in, out), as published. wte.weight is the output layer, too.
ULP_API std::shared_ptr<TextModel> make_gpt2(const Gpt2Config& config = {});

}  // namespace ulp::models
