// Decoders of the Llama family: Llama, Mistral, Qwen, Gemma, Phi-3, SmolLM, StableLM, with the parameter
// names of their published weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// How rotary embeddings are stretched for texts longer than those of the first training.
enum class RotaryScaling : uint8_t {
  none,
  linear,   ///< all frequencies are divided by the factor (Chen et al. 2023)
  llama3,   ///< low frequencies are, high ones are not, with a ramp between them (Llama 3.1)
  yarn,     ///< so, with a ramp over pairs, and cosines and sines are multiplied (Peng et al. 2023)
  longrope  ///< each pair has a divisor of its own, and cosines and sines are multiplied (Ding et al. 2024)
};

/// Rotary position embeddings (Su et al. 2021): pair i of a head of size d turns by theta^(-2i / d) at each
/// position.
struct ULP_API RotaryConfig {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;
  double low_frequency_factor = 1;   ///< llama3: "low_freq_factor"
  double high_frequency_factor = 4;  ///< llama3: "high_freq_factor"
  int64_t original_length = 8192;    ///< all but linear: "original_max_position_embeddings"
  double beta_fast =
      32;  ///< yarn: pairs that turn more often than this in original_length keep their frequency
  double beta_slow = 1;  ///< yarn: those that turn less often are divided by the factor
  bool truncate = true;  ///< yarn: the ramp begins and ends at whole pairs
  /// yarn, longrope: of cosines and sines; 0: 0.1 ln(factor) + 1, or sqrt(1 + ln(factor) /
  /// ln(original_length)).
  double attention_factor = 0;
  /// longrope: the divisors, one a pair ("short_factor"). Texts of more than original_length tokens would
  /// have others ("long_factor") for all of their positions: there are none.
  std::vector<double> divisors = {};
};

/// The function of the gate of the feed-forward part (Shazeer 2020).
enum class GateActivation : uint8_t {
  silu,      ///< SwiGLU
  gelu,      ///< GeGLU with the error function
  gelu_tanh  ///< GeGLU with its approximation by tanh
};

/// What the queries of a layer see.
enum class LayerAttention : uint8_t {
  full,    ///< all tokens up to their own
  sliding  ///< the last DecoderConfig::window of them
};

/// The sizes and choices of the network. The defaults are Llama 2's with 7 billion parameters.
struct ULP_API DecoderConfig {
  std::string name = "llama";  ///< of the family, for errors
  int64_t vocab_size = 32000;
  int64_t max_length = 4096;  ///< at most "max_position_embeddings"; the rotary tables have so many rows
  int64_t width = 4096;       ///< "hidden_size"
  int64_t layers = 32;        ///< "num_hidden_layers"
  int64_t heads = 32;         ///< of queries: "num_attention_heads"
  int64_t kv_heads =
      32;  ///< of keys and values: "num_key_value_heads"; divides `heads` (Ainslie et al. 2023)
  int64_t head_size = 128;  ///< "head_dim"; even
  int64_t rotary_size =
      0;  ///< the first so many numbers of a head turn; even; 0: all ("partial_rotary_factor")
  int64_t intermediate = 11008;  ///< width of the feed-forward part
  GateActivation activation = GateActivation::silu;
  double norm_eps = 1e-5;          ///< of the RMS norms (Zhang and Sennrich 2019)
  bool layer_norms = false;        ///< layer norms with biases in their place, as StableLM has them
  bool unit_offset_norms = false;  ///< weights of norms are stored less 1, as Gemma's are
  bool post_norms = false;   ///< the results of both parts of a layer are normalised, too, as Gemma 2's are
  bool qk_norms = false;     ///< each head of queries and of keys is normalised
  bool qkv_bias = false;     ///< of queries, keys and values
  bool output_bias = false;  ///< of the attention's output layer
  bool mlp_bias = false;     ///< of the feed-forward layers
  bool fused_projections = false;    ///< one layer "qkv_proj" and one "gate_up_proj", as Phi-3 has them
  bool tied_embeddings = false;      ///< the output layer is the table of words
  double embedding_scale = 1;        ///< of the embeddings; sqrt(width) for Gemma
  double attention_scale = 0;        ///< of the scores; 0: 1 / sqrt(head_size)
  double attention_softcap = 0;      ///< c tanh(scores / c) (Bello et al. 2016); 0: none
  double logit_softcap = 0;          ///< the same of the logits
  RotaryConfig rotary = {};          ///< of layers with full attention
  RotaryConfig sliding_rotary = {};  ///< of layers with sliding windows
  int64_t window = 0;                ///< tokens that a sliding layer sees, its own among them
  std::vector<LayerAttention> layer_types = {};  ///< one a layer; empty: full attention everywhere
  double attention_dropout = 0;                  ///< of attention weights, in training

  /// Llama over bytes (2 layers of 128, 4 heads that share 2 of keys and values): trains on text files in
  /// seconds.
  static DecoderConfig tiny();
  /// Throws Error naming the field.
  void validate() const;
};

/// Names: model.embed_tokens.weight, model.layers.0.self_attn.q_proj.weight,
/// model.layers.0.mlp.gate_proj.weight, model.layers.0.input_layernorm.weight, model.norm.weight,
/// lm_head.weight (not where it is tied).
ULP_API std::shared_ptr<TextModel> make_decoder(const DecoderConfig& config = {});

}  // namespace ulp::models
