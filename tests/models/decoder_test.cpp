// Decoders of the Llama family: their formulas spelled out again in float64, names and sizes, what is
// refused.
#include "ulp/models/decoder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "error_of.h"
#include "parameter_count.h"

namespace {

using namespace ulp::models;

/// A network's definition, one head and one query at a time, in float64.
class DecoderReference {
 public:
  DecoderReference(const DecoderConfig& config, const TextModel& model) : config_(config) {
    for (const auto& item : model.named_parameters())
      weights_.insert(item.key(), item.value().detach().to(at::kDouble));
  }

  at::Tensor forward(const at::Tensor& tokens) const {
    at::Tensor x = w("model.embed_tokens.weight").index({tokens}) * config_.embedding_scale;
    for (int64_t i = 0; i < config_.layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + '.';
      const bool post = config_.post_norms;
      at::Tensor made = attention(layer + "self_attn.", norm(layer + "input_layernorm", x), slides(i));
      if (post) made = norm(layer + "post_attention_layernorm", made);
      x = x + made;
      made = feed_forward(layer + "mlp.",
                          norm(layer + (post ? "pre_feedforward_layernorm" : "post_attention_layernorm"), x));
      if (post) made = norm(layer + "post_feedforward_layernorm", made);
      x = x + made;
    }
    const char* const head = config_.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    return capped(torch::matmul(norm("model.norm", x), w(head).t()), config_.logit_softcap);
  }

 private:
  const at::Tensor& w(const std::string& name) const { return weights_[name]; }
  bool slides(int64_t layer) const {
    return !config_.layer_types.empty() &&
           config_.layer_types[static_cast<size_t>(layer)] == LayerAttention::sliding;
  }
  static at::Tensor capped(const at::Tensor& x, double cap) {
    return cap == 0 ? x : cap * torch::tanh(x / cap);
  }

  at::Tensor norm(const std::string& layer, const at::Tensor& x) const {
    if (config_.layer_norms) {
      const at::Tensor apart = x - x.mean(-1, true);
      const at::Tensor spread = (apart * apart).mean(-1, true) + config_.norm_eps;
      return apart / spread.sqrt() * w(layer + ".weight") + w(layer + ".bias");
    }
    const at::Tensor size = (x * x).mean(-1, true) + config_.norm_eps;
    return x / size.sqrt() * (w(layer + ".weight") + (config_.unit_offset_norms ? 1 : 0));
  }

  at::Tensor linear(const std::string& layer, const at::Tensor& x, bool bias) const {
    const at::Tensor product = torch::matmul(x, w(layer + ".weight").t());
    EXPECT_EQ(weights_.contains(layer + ".bias"), bias) << layer;
    return bias ? product + w(layer + ".bias") : product;
  }

  at::Tensor feed_forward(const std::string& layer, const at::Tensor& x) const {
    std::vector<at::Tensor> parts;
    if (config_.fused_projections)
      parts = linear(layer + "gate_up_proj", x, config_.mlp_bias).split(config_.intermediate, -1);
    else
      parts = {linear(layer + "gate_proj", x, config_.mlp_bias),
               linear(layer + "up_proj", x, config_.mlp_bias)};
    const at::Tensor& g = parts[0];
    at::Tensor gate;
    switch (config_.activation) {
      case GateActivation::silu:
        gate = g / (1 + torch::exp(-g));
        break;
      case GateActivation::gelu:
        gate = g * 0.5 * (1 + torch::erf(g / std::numbers::sqrt2));
        break;
      case GateActivation::gelu_tanh:
        gate = g * 0.5 * (1 + torch::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g.pow(3))));
        break;
    }
    return linear(layer + "down_proj", gate * parts[1], config_.mlp_bias);
  }

  int64_t rotary_size() const { return config_.rotary_size > 0 ? config_.rotary_size : config_.head_size; }

  /// The share that yarn leaves of a frequency: the pairs beta_fast and beta_slow are where theta^(2i / d) is
  /// L / (2 pi beta).
  double yarn_share(const RotaryConfig& rotary, int64_t pair) const {
    const auto place = [&](double turns) {
      const auto length = static_cast<double>(rotary.original_length);
      return static_cast<double>(rotary_size()) / 2 * std::log(length / (2 * std::numbers::pi * turns)) /
             std::log(rotary.theta);
    };
    double low = place(rotary.beta_fast), high = place(rotary.beta_slow);
    if (rotary.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rotary_size()) - 1);
    const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    return (1 - ramp) + ramp / rotary.factor;
  }

  /// The factor of cosines and sines.
  static double stretch(const RotaryConfig& rotary) {
    const bool scales = rotary.scaling == RotaryScaling::yarn || rotary.scaling == RotaryScaling::longrope;
    if (!scales || rotary.attention_factor > 0) return scales ? rotary.attention_factor : 1;
    const double length = static_cast<double>(rotary.original_length), grown = std::log(rotary.factor);
    return rotary.scaling == RotaryScaling::yarn ? 1 + 0.1 * grown : std::sqrt(1 + grown / std::log(length));
  }

  /// The angle of pair `i` at a position.
  double angle(const RotaryConfig& rotary, int64_t pair, int64_t position) const {
    const auto pairs = static_cast<double>(rotary_size()) / 2;
    double turn = std::pow(rotary.theta, -static_cast<double>(pair) / pairs);
    if (rotary.scaling == RotaryScaling::linear) turn /= rotary.factor;
    if (rotary.scaling == RotaryScaling::yarn) turn *= yarn_share(rotary, pair);
    if (rotary.scaling == RotaryScaling::longrope) turn /= rotary.divisors[static_cast<size_t>(pair)];
    if (rotary.scaling == RotaryScaling::llama3) {
      const double turns = static_cast<double>(rotary.original_length) * turn / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - rotary.low_frequency_factor) /
                                         (rotary.high_frequency_factor - rotary.low_frequency_factor),
                                     0.0, 1.0);
      turn *= kept + (1 - kept) / rotary.factor;
    }
    return turn * static_cast<double>(position);
  }

  /// A head (S, head_size): numbers i and i + d / 2 of the first d are a complex number, which turns.
  at::Tensor turned(const at::Tensor& x, const RotaryConfig& rotary) const {
    const int64_t half = rotary_size() / 2;
    const double grown = stretch(rotary);
    at::Tensor made = x.clone();
    const auto from = x.accessor<double, 2>();
    auto to = made.accessor<double, 2>();
    for (int64_t s = 0; s < x.size(0); ++s) {
      for (int64_t i = 0; i < half; ++i) {
        const double c = grown * std::cos(angle(rotary, i, s)), n = grown * std::sin(angle(rotary, i, s));
        to[s][i] = from[s][i] * c - from[s][i + half] * n;
        to[s][i + half] = from[s][i] * n + from[s][i + half] * c;
      }
    }
    return made;
  }

  at::Tensor attention(const std::string& layer, const at::Tensor& x, bool slides) const {
    const int64_t size = config_.head_size, shared = config_.heads / config_.kv_heads;
    const int64_t queries = config_.heads * size, keys = config_.kv_heads * size;
    std::vector<at::Tensor> parts;
    if (config_.fused_projections)
      parts = linear(layer + "qkv_proj", x, config_.qkv_bias).split_with_sizes({queries, keys, keys}, -1);
    else
      for (const char* const name : {"q_proj", "k_proj", "v_proj"})
        parts.push_back(linear(layer + name, x, config_.qkv_bias));
    const RotaryConfig& rotary = slides ? config_.sliding_rotary : config_.rotary;
    const double scale =
        config_.attention_scale > 0 ? config_.attention_scale : 1 / std::sqrt(static_cast<double>(size));
    at::Tensor mixed = torch::zeros({x.size(0), x.size(1), queries}, at::kDouble);
    for (int64_t b = 0; b < x.size(0); ++b) {
      for (int64_t h = 0; h < config_.heads; ++h) {
        at::Tensor q = parts[0][b].narrow(1, h * size, size),
                   k = parts[1][b].narrow(1, h / shared * size, size);
        const at::Tensor v = parts[2][b].narrow(1, h / shared * size, size);
        if (config_.qk_norms) {
          q = norm(layer + "q_norm", q);
          k = norm(layer + "k_norm", k);
        }
        q = turned(q, rotary);
        k = turned(k, rotary);
        for (int64_t s = 0; s < x.size(1); ++s) {
          const int64_t first = slides ? std::max<int64_t>(0, s - config_.window + 1) : 0,
                        seen = s + 1 - first;
          const at::Tensor scores = torch::matmul(k.narrow(0, first, seen), q[s]) * scale;
          const at::Tensor shares = torch::exp(capped(scores, config_.attention_softcap));
          mixed[b][s].narrow(0, h * size, size) =
              torch::matmul(shares / shares.sum(), v.narrow(0, first, seen));
        }
      }
    }
    return linear(layer + "o_proj", mixed, config_.output_bias);
  }

  DecoderConfig config_;
  torch::OrderedDict<std::string, at::Tensor> weights_;
};

DecoderConfig small_decoder() {
  return {.vocab_size = 40,
          .max_length = 20,
          .width = 16,
          .layers = 3,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 4,
          .intermediate = 24};
}

struct DecoderCase {
  const char* name;
  std::function<void(DecoderConfig&)> change;
};

const std::vector<DecoderCase> kDecoderCases = {
    {"llama2", [](DecoderConfig& c) { c.kv_heads = 4; }},
    {"llama3",
     [](DecoderConfig& c) {
       c.head_size = 12;
       c.rotary = {.theta = 500, .scaling = RotaryScaling::llama3, .factor = 8, .original_length = 40};
     }},
    {"linear", [](DecoderConfig& c) { c.rotary = {.scaling = RotaryScaling::linear, .factor = 4}; }},
    {"yarn",
     [](DecoderConfig& c) {
       c.head_size = 16;
       c.rotary = {
           .theta = 100, .scaling = RotaryScaling::yarn, .factor = 4, .original_length = 64, .beta_fast = 8};
     }},
    {"yarn_of_parts",
     [](DecoderConfig& c) {
       c.head_size = 12;
       c.rotary_size = 8;
       c.rotary = {
           .theta = 50, .scaling = RotaryScaling::yarn, .factor = 3, .original_length = 40, .beta_fast = 5};
       c.rotary.truncate = false;
       c.rotary.attention_factor = 1.3;
     }},
    {"phi4",
     [](DecoderConfig& c) {
       c.fused_projections = c.tied_embeddings = true;
       c.head_size = 8;
       c.rotary_size = 6;
       c.rotary = {.scaling = RotaryScaling::longrope, .factor = 32, .original_length = 24};
       c.rotary.divisors = {1, 1.5, 3};
     }},
    {"stablelm",
     [](DecoderConfig& c) {
       c.layer_norms = c.qkv_bias = true;
       c.head_size = 8;
       c.rotary_size = 2;
     }},
    {"biases", [](DecoderConfig& c) { c.qkv_bias = c.output_bias = c.mlp_bias = true; }},
    {"qwen2",
     [](DecoderConfig& c) {
       c.qkv_bias = c.tied_embeddings = true;
       c.window = 5;
       c.sliding_rotary.theta = 100;
       c.layer_types = {LayerAttention::full, LayerAttention::sliding, LayerAttention::sliding};
     }},
    {"qwen3",
     [](DecoderConfig& c) {
       c.qk_norms = true;
       c.head_size = 6;
       c.kv_heads = 1;
     }},
    {"gelu", [](DecoderConfig& c) { c.activation = GateActivation::gelu; }},
    {"gemma2",
     [](DecoderConfig& c) {
       c.activation = GateActivation::gelu_tanh;
       c.unit_offset_norms = c.post_norms = c.tied_embeddings = true;
       c.embedding_scale = 4;
       c.attention_scale = 0.3;
       c.attention_softcap = 2;
       c.logit_softcap = 3;
       c.window = 4;
       c.layer_types = {LayerAttention::sliding, LayerAttention::full, LayerAttention::sliding};
     }},
    {"phi3",
     [](DecoderConfig& c) {
       c.fused_projections = true;
       c.window = 1;
       c.layer_types = {LayerAttention::sliding, LayerAttention::full, LayerAttention::full};
     }},
};

class Decoders : public ::testing::TestWithParam<DecoderCase> {};

TEST_P(Decoders, ComputeTheirDefinition) {
  DecoderConfig config = small_decoder();
  GetParam().change(config);
  torch::set_num_threads(1);
  torch::manual_seed(5);
  const auto model = make_decoder(config);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  model->eval();
  const at::Tensor tokens = torch::randint(0, config.vocab_size, {2, 13});
  const at::Tensor want = DecoderReference(config, *model).forward(tokens), got = model->forward(tokens);
  ASSERT_EQ(got.sizes(), want.sizes());
  // Sums of at most 64 terms, some ten layers deep, in f32.
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-5 * want.abs().max().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Families, Decoders, ::testing::ValuesIn(kDecoderCases),
                         [](const auto& info) { return info.param.name; });

TEST(Decoder, NamesAndSizesArePublishedOnes) {
  // SmolLM-135M
  const auto model = make_decoder({.vocab_size = 49152,
                                   .width = 576,
                                   .layers = 30,
                                   .heads = 9,
                                   .kv_heads = 3,
                                   .head_size = 64,
                                   .intermediate = 1536,
                                   .tied_embeddings = true});
  EXPECT_EQ(parameter_count(*model), 134'515'008);
  const auto parameters = model->named_parameters();
  for (const char* const name :
       {"model.embed_tokens.weight", "model.layers.29.self_attn.q_proj.weight",
        "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight"})
    EXPECT_TRUE(parameters.contains(name)) << name;
  EXPECT_FALSE(parameters.contains("lm_head.weight"));
  EXPECT_EQ(parameters["model.layers.3.self_attn.k_proj.weight"].sizes(), (std::vector<int64_t>{192, 576}));
  EXPECT_TRUE(model->named_buffers().is_empty());
}

TEST(Decoder, ImpossibleConfigurationsAreRefusedByField) {
  const auto refused = [](auto change, const char* says) {
    DecoderConfig config = small_decoder();
    config.name = "qwen3";
    change(config);
    EXPECT_SAYS(ulp::test::error_of([&] { make_decoder(config); }), says);
  };
  refused([](auto& c) { c.kv_heads = 3; }, "kv_heads that divide the 4 heads of 'qwen3', got 3");
  refused([](auto& c) { c.head_size = 5; }, "an even head_size");
  refused([](auto& c) { c.layers = 0; }, "layers");
  refused([](auto& c) { c.layer_types = {LayerAttention::full}; }, "layer_types of the 3 layers");
  refused([](auto& c) { c.layer_types.assign(3, LayerAttention::sliding); }, "window");
  refused([](auto& c) { c.norm_eps = -1; }, "norm_eps of at least 0");
  refused([](auto& c) { c.embedding_scale = 0; }, "embedding_scale above 0");
  refused([](auto& c) { c.attention_softcap = std::nan(""); }, "attention_softcap");
  refused([](auto& c) { c.attention_dropout = 1; }, "attention_dropout");
  refused([](auto& c) { c.rotary.theta = 0; }, "rotary theta above 0");
  refused([](auto& c) { c.rotary_size = 3; }, "an even rotary_size of 0 to 4 for 'qwen3', got 3");
  refused([](auto& c) { c.rotary_size = 6; }, "an even rotary_size of 0 to 4 for 'qwen3', got 6");
  refused([](auto& c) { c.layer_norms = c.unit_offset_norms = true; }, "got both");
  refused([](auto& c) { c.rotary = {.scaling = RotaryScaling::yarn, .beta_fast = 0}; },
          "rotary beta_fast above 0");
  refused([](auto& c) { c.rotary = {.scaling = RotaryScaling::longrope}; },
          "divisors of the 2 pairs of 'qwen3', got 0");
  refused(
      [](auto& c) {
        c.rotary = {.scaling = RotaryScaling::longrope, .original_length = 19};
        c.rotary.divisors = {1, 2};
      },
      "max_length of at most the original_length of 'qwen3'");
  refused([](auto& c) { c.rotary = {.scaling = RotaryScaling::llama3, .high_frequency_factor = 1}; },
          "rotary high_frequency_factor above low_frequency_factor");
}

}  // namespace
