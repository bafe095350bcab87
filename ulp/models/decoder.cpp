#include "ulp/models/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "ulp/base/error.h"
#include "ulp/models/layers.h"
#include "ulp/models/rotary.h"
#include "ulp/models/text_layers.h"

namespace ulp::models {

namespace {

namespace nn = torch::nn;

constexpr const char* kMakeDecoderWhere = "models.make_decoder";

nn::Linear linear_layer(int64_t in, int64_t out, bool bias) {
  return nn::Linear(nn::LinearOptions(in, out).bias(bias));
}

struct DecoderNorm final : nn::Module {
  DecoderNorm(int64_t width, const DecoderConfig& config)
      : weight(register_parameter("weight", torch::full({width}, config.unit_offset_norms ? 0.0 : 1.0))),
        eps(config.norm_eps),
        add_one(config.unit_offset_norms) {
    if (config.layer_norms) bias = register_parameter("bias", torch::zeros({width}));
  }

  at::Tensor forward(const at::Tensor& x) {
    if (bias.defined()) return torch::layer_norm(x, weight.sizes(), weight, bias, eps);
    return at::rms_norm(x, weight.sizes(), add_one ? weight + 1 : weight, eps);
  }

  at::Tensor weight, bias;  ///< the bias of layer norms alone
  double eps;
  bool add_one;
};

/// What the layers of one kind of attention share in a run.
struct Positions {
  at::Tensor cos, sin;
  /// bool (S, S), true where a query sees a key; undefined: all keys up to its own. `hidden`, where scores
  /// have a soft cap: true where it does not.
  at::Tensor seen, hidden;
};

class DecoderAttention final : public nn::Module {
 public:
  explicit DecoderAttention(const DecoderConfig& config) : config_(config) {
    const int64_t queries = config.heads * config.head_size, keys = config.kv_heads * config.head_size;
    if (config.fused_projections) {
      qkv_ = register_module("qkv_proj", linear_layer(config.width, queries + 2 * keys, config.qkv_bias));
    } else {
      q_ = register_module("q_proj", linear_layer(config.width, queries, config.qkv_bias));
      k_ = register_module("k_proj", linear_layer(config.width, keys, config.qkv_bias));
      v_ = register_module("v_proj", linear_layer(config.width, keys, config.qkv_bias));
    }
    output_ = register_module("o_proj", linear_layer(queries, config.width, config.output_bias));
    if (!config.qk_norms) return;
    q_norm_ = register_module("q_norm", std::make_shared<DecoderNorm>(config.head_size, config));
    k_norm_ = register_module("k_norm", std::make_shared<DecoderNorm>(config.head_size, config));
  }

  at::Tensor forward(const at::Tensor& x, const Positions& positions) {
    auto [q, k, v] = projected(x);
    if (q_norm_) q = q_norm_->forward(q);
    if (k_norm_) k = k_norm_->forward(k);
    q = rotate(q, positions.cos, positions.sin);
    k = rotate(k, positions.cos, positions.sin);
    return output_(attended(q, repeated(k), repeated(v), positions).transpose(1, 2).flatten(2));
  }

 private:
  /// Queries, keys and values (B, heads, S, head_size).
  std::array<at::Tensor, 3> projected(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& rows, int64_t count) {
      return rows.view({x.size(0), x.size(1), count, config_.head_size}).transpose(1, 2);
    };
    if (!qkv_)
      return {heads(q_(x), config_.heads), heads(k_(x), config_.kv_heads), heads(v_(x), config_.kv_heads)};
    const at::Tensor all = heads(qkv_(x), config_.heads + 2 * config_.kv_heads);
    return {all.narrow(1, 0, config_.heads), all.narrow(1, config_.heads, config_.kv_heads),
            all.narrow(1, config_.heads + config_.kv_heads, config_.kv_heads)};
  }

  /// Each head of keys or values as often as queries share it.
  at::Tensor repeated(const at::Tensor& x) const {
    if (config_.heads == config_.kv_heads) return x;
    const int64_t b = x.size(0), s = x.size(2);
    return x.unsqueeze(2)
        .expand({b, config_.kv_heads, config_.heads / config_.kv_heads, s, config_.head_size})
        .reshape({b, config_.heads, s, config_.head_size});
  }

  at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const Positions& positions) const {
    const double scale = config_.attention_scale > 0 ? config_.attention_scale
                                                     : 1 / std::sqrt(static_cast<double>(config_.head_size));
    const double dropout = is_training() ? config_.attention_dropout : 0.0;
    if (config_.attention_softcap == 0) {
      const auto mask = positions.seen.defined() ? std::optional(positions.seen) : std::nullopt;
      return at::scaled_dot_product_attention(q, k, v, mask, dropout, /*is_causal=*/!mask, scale);
    }
    const at::Tensor scores = torch::matmul(q, k.transpose(2, 3)) * (scale / config_.attention_softcap);
    const at::Tensor weights =
        torch::softmax((torch::tanh(scores) * config_.attention_softcap)
                           .masked_fill(positions.hidden, -std::numeric_limits<double>::infinity()),
                       -1);
    return torch::matmul(dropout > 0 ? torch::dropout(weights, dropout, /*train=*/true) : weights, v);
  }

  DecoderConfig config_;
  nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, qkv_{nullptr}, output_{nullptr};
  std::shared_ptr<DecoderNorm> q_norm_, k_norm_;
};

class GatedFeedForward final : public nn::Module {
 public:
  explicit GatedFeedForward(const DecoderConfig& config) : activation_(config.activation) {
    const int64_t width = config.width, inner = config.intermediate;
    if (config.fused_projections) {
      both_ = register_module("gate_up_proj", linear_layer(width, 2 * inner, config.mlp_bias));
    } else {
      gate_ = register_module("gate_proj", linear_layer(width, inner, config.mlp_bias));
      up_ = register_module("up_proj", linear_layer(width, inner, config.mlp_bias));
    }
    down_ = register_module("down_proj", linear_layer(inner, width, config.mlp_bias));
  }

  at::Tensor forward(const at::Tensor& x) {
    if (!both_) return down_(activated(gate_(x)) * up_(x));
    const auto parts = both_(x).chunk(2, -1);
    return down_(activated(parts[0]) * parts[1]);
  }

 private:
  at::Tensor activated(const at::Tensor& gate) const {
    if (activation_ == GateActivation::silu) return torch::silu(gate);
    return torch::gelu(gate, activation_ == GateActivation::gelu ? "none" : "tanh");
  }

  GateActivation activation_;
  nn::Linear gate_{nullptr}, up_{nullptr}, both_{nullptr}, down_{nullptr};
};

class DecoderLayer final : public nn::Module {
 public:
  explicit DecoderLayer(const DecoderConfig& config)
      : attention_(register_module("self_attn", std::make_shared<DecoderAttention>(config))),
        feed_forward_(register_module("mlp", std::make_shared<GatedFeedForward>(config))) {
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<DecoderNorm>(config.width, config));
    };
    before_attention_ = norm("input_layernorm");
    if (config.post_norms) behind_attention_ = norm("post_attention_layernorm");
    before_feed_forward_ = norm(config.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    if (config.post_norms) behind_feed_forward_ = norm("post_feedforward_layernorm");
  }

  at::Tensor forward(const at::Tensor& x, const Positions& positions) {
    at::Tensor made = attention_->forward(before_attention_->forward(x), positions);
    if (behind_attention_) made = behind_attention_->forward(made);
    const at::Tensor attended = x + made;
    made = feed_forward_->forward(before_feed_forward_->forward(attended));
    if (behind_feed_forward_) made = behind_feed_forward_->forward(made);
    return attended + made;
  }

 private:
  std::shared_ptr<DecoderAttention> attention_;
  std::shared_ptr<GatedFeedForward> feed_forward_;
  std::shared_ptr<DecoderNorm> before_attention_, behind_attention_, before_feed_forward_,
      behind_feed_forward_;
};

/// Everything below the output layer, which published weights call "model".
class DecoderTrunk final : public nn::Module {
 public:
  explicit DecoderTrunk(const DecoderConfig& config)
      : words(register_module("embed_tokens", nn::Embedding(config.vocab_size, config.width))),
        config_(config),
        layers_(register_module("layers", nn::ModuleList())) {
    for (int64_t i = 0; i < config.layers; ++i) layers_->push_back(std::make_shared<DecoderLayer>(config));
    norm_ = register_module("norm", std::make_shared<DecoderNorm>(config.width, config));
    const int64_t turned = config.rotary_size > 0 ? config.rotary_size : config.head_size;
    full_ = rotary_tables(config.rotary, turned, config.max_length);
    if (std::ranges::count(config.layer_types, LayerAttention::sliding) > 0)
      sliding_ = rotary_tables(config.sliding_rotary, turned, config.max_length);
  }

  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = words(tokens);
    if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
    const Positions full = positions(x, full_, 0);
    const Positions sliding = sliding_.cos.defined() ? positions(x, sliding_, config_.window) : Positions{};
    for (size_t i = 0; i < layers_->size(); ++i) {
      const bool slides = !config_.layer_types.empty() && config_.layer_types[i] == LayerAttention::sliding;
      x = layers_[i]->as<DecoderLayer>()->forward(x, slides ? sliding : full);
    }
    return norm_->forward(x);
  }

  nn::Embedding words;

 private:
  /// Of the tokens of this run, on their device and in their type. A window that no text exceeds needs no
  /// mask.
  Positions positions(const at::Tensor& x, const RotaryTables& tables, int64_t window) const {
    const auto rows = [&](const at::Tensor& table) {
      const at::Tensor own = table.narrow(0, 0, x.size(1));
      const bool fits = own.device() == x.device() && own.scalar_type() == x.scalar_type();
      return fits ? own : own.to(x.options());
    };
    const bool slides = window > 0 && window < config_.max_length;
    Positions made{rows(tables.cos), rows(tables.sin), {}, {}};
    if (!slides && config_.attention_softcap == 0) return made;
    made.seen = torch::ones({x.size(1), x.size(1)}, x.options().dtype(at::kBool)).tril();
    if (slides) made.seen = made.seen.triu(1 - window);
    if (config_.attention_softcap > 0) made.hidden = made.seen.logical_not();
    return made;
  }

  DecoderConfig config_;
  nn::ModuleList layers_;
  std::shared_ptr<DecoderNorm> norm_;
  RotaryTables full_, sliding_;
};

class Decoder final : public TextModel {
 public:
  explicit Decoder(const DecoderConfig& config)
      : config_(config), model_(register_module("model", std::make_shared<DecoderTrunk>(config))) {
    if (!config.tied_embeddings)
      head_ = register_module("lm_head", linear_layer(config.width, config.vocab_size, false));
    init_like_transformers(*this);
  }

  TextTask task() const override { return TextTask::language_modelling; }

  at::Tensor forward(at::Tensor tokens) override {
    check_tokens(config_.name.c_str(), tokens, config_.max_length);
    const at::Tensor x = model_->forward(tokens);
    const at::Tensor logits = head_ ? head_(x) : torch::linear(x, model_->words->weight);
    if (config_.logit_softcap == 0) return logits;
    return torch::tanh(logits / config_.logit_softcap) * config_.logit_softcap;
  }

 private:
  DecoderConfig config_;
  std::shared_ptr<DecoderTrunk> model_;
  nn::Linear head_{nullptr};
};

/// Throws Error naming the option of a decoder of this name unless the value is finite and above 0, or 0
/// where that means something.
void check_number(const std::string& name, const char* option, double value, bool or_zero = false) {
  if (std::isfinite(value) && (value > 0 || (or_zero && value == 0))) return;
  fail(kMakeDecoderWhere, "expected ", option, or_zero ? " of at least 0" : " above 0", " for '", name,
       "', got ", value);
}

void check_yarn(const std::string& name, const RotaryConfig& config) {
  check_number(name, "rotary beta_fast", config.beta_fast);
  check_number(name, "rotary beta_slow", config.beta_slow);
  if (config.theta == 1) fail(kMakeDecoderWhere, "expected a rotary theta that is not 1 for '", name, "'");
}

void check_longrope(const DecoderConfig& decoder, const RotaryConfig& config) {
  const int64_t pairs = (decoder.rotary_size > 0 ? decoder.rotary_size : decoder.head_size) / 2;
  if (static_cast<int64_t>(config.divisors.size()) != pairs)
    fail(kMakeDecoderWhere, "expected rotary divisors of the ", pairs, " pairs of '", decoder.name, "', got ",
         config.divisors.size());
  for (const double divisor : config.divisors) check_number(decoder.name, "rotary divisors", divisor);
  if (decoder.max_length > config.original_length)
    fail(kMakeDecoderWhere, "expected a max_length of at most the original_length of '", decoder.name,
         "', beyond which longrope has other frequencies, got ", decoder.max_length, " and ",
         config.original_length);
}

void check_rotary(const DecoderConfig& decoder, const RotaryConfig& config) {
  const std::string& name = decoder.name;
  check_number(name, "rotary theta", config.theta);
  check_number(name, "rotary factor", config.factor);
  check_number(name, "rotary attention_factor", config.attention_factor, true);
  if (config.scaling == RotaryScaling::yarn || config.scaling == RotaryScaling::longrope)
    check_option(name.c_str(), "rotary original_length", config.original_length, 2);
  if (config.scaling == RotaryScaling::yarn) return check_yarn(name, config);
  if (config.scaling == RotaryScaling::longrope) return check_longrope(decoder, config);
  if (config.scaling != RotaryScaling::llama3) return;
  check_option(name.c_str(), "rotary original_length", config.original_length);
  check_number(name, "rotary low_frequency_factor", config.low_frequency_factor);
  check_number(name, "rotary high_frequency_factor", config.high_frequency_factor);
  if (config.high_frequency_factor > config.low_frequency_factor) return;
  fail(kMakeDecoderWhere, "expected a rotary high_frequency_factor above low_frequency_factor for '", name,
       "', got ", config.high_frequency_factor, " and ", config.low_frequency_factor);
}

}  // namespace

DecoderConfig DecoderConfig::tiny() {
  return {.vocab_size = 256,
          .max_length = 256,
          .width = 128,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 32,
          .intermediate = 352};
}

void DecoderConfig::validate() const {
  const char* const model = name.c_str();
  check_option(model, "vocab_size", vocab_size);
  check_option(model, "max_length", max_length);
  check_option(model, "width", width);
  check_option(model, "layers", layers);
  check_option(model, "heads", heads);
  check_option(model, "kv_heads", kv_heads);
  check_option(model, "head_size", head_size, 2);
  check_option(model, "intermediate", intermediate);
  if (heads % kv_heads != 0)
    fail(kMakeDecoderWhere, "expected kv_heads that divide the ", heads, " heads of '", name, "', got ",
         kv_heads);
  if (head_size % 2 != 0)
    fail(kMakeDecoderWhere, "expected an even head_size for '", name, "', got ", head_size);
  if (rotary_size < 0 || rotary_size > head_size || rotary_size % 2 != 0)
    fail(kMakeDecoderWhere, "expected an even rotary_size of 0 to ", head_size, " for '", name, "', got ",
         rotary_size);
  if (layer_norms && unit_offset_norms)
    fail(kMakeDecoderWhere, "expected layer_norms or unit_offset_norms for '", name, "', got both");
  if (!layer_types.empty() && static_cast<int64_t>(layer_types.size()) != layers)
    fail(kMakeDecoderWhere, "expected layer_types of the ", layers, " layers of '", name, "', got ",
         layer_types.size());
  check_number(name, "norm_eps", norm_eps, true);
  check_number(name, "embedding_scale", embedding_scale);
  check_number(name, "attention_scale", attention_scale, true);
  check_number(name, "attention_softcap", attention_softcap, true);
  check_number(name, "logit_softcap", logit_softcap, true);
  check_rate(model, "attention_dropout", attention_dropout);
  check_rotary(*this, rotary);
  if (std::ranges::count(layer_types, LayerAttention::sliding) == 0) return;
  check_option(model, "window", window);
  check_rotary(*this, sliding_rotary);
}

std::shared_ptr<TextModel> make_decoder(const DecoderConfig& config) {
  config.validate();
  return std::make_shared<Decoder>(config);
}

}  // namespace ulp::models
