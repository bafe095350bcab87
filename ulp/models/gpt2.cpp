#include "ulp/models/gpt2.h"

#include <cmath>

#include "ulp/models/layers.h"
#include "ulp/models/text_layers.h"

namespace ulp::models {

namespace {

namespace nn = torch::nn;

/// A linear layer whose weight is stored (in, out), which the published code calls Conv1D.
struct Conv1D final : nn::Module {
  Conv1D(int64_t in, int64_t out, double deviation)
      : weight(register_parameter("weight", torch::empty({in, out}).normal_(0, deviation))),
        bias(register_parameter("bias", torch::zeros({out}))) {}

  at::Tensor forward(const at::Tensor& x) { return torch::linear(x, weight.t(), bias); }

  at::Tensor weight, bias;
};

constexpr double kDeviation = 0.02;

/// Of the layers that write into the residual stream, which sums 2 * layers of them.
double residual_deviation(const Gpt2Config& config) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

struct Gpt2Attention final : nn::Module {
  explicit Gpt2Attention(const Gpt2Config& config)
      : c_attn(
            register_module("c_attn", std::make_shared<Conv1D>(config.width, 3 * config.width, kDeviation))),
        c_proj(register_module(
            "c_proj", std::make_shared<Conv1D>(config.width, config.width, residual_deviation(config)))),
        heads(config.heads),
        dropout(config.attention_dropout) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto qkv = c_attn->forward(x).chunk(3, 2);
    return c_proj->forward(
        attend(qkv[0], qkv[1], qkv[2], {},
               {.heads = heads, .dropout = is_training() ? dropout : 0.0, .causal = true}));
  }

  std::shared_ptr<Conv1D> c_attn, c_proj;
  int64_t heads;
  double dropout;
};

struct FeedForward final : nn::Module {
  explicit FeedForward(const Gpt2Config& config)
      : c_fc(register_module("c_fc", std::make_shared<Conv1D>(config.width, 4 * config.width, kDeviation))),
        c_proj(register_module(
            "c_proj", std::make_shared<Conv1D>(4 * config.width, config.width, residual_deviation(config)))) {
  }

  at::Tensor forward(const at::Tensor& x) { return c_proj->forward(torch::gelu(c_fc->forward(x), "tanh")); }

  std::shared_ptr<Conv1D> c_fc, c_proj;
};

struct Block final : nn::Module {
  explicit Block(const Gpt2Config& config)
      : ln_1(register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
        attn(register_module("attn", std::make_shared<Gpt2Attention>(config))),
        ln_2(register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({config.width})))),
        mlp(register_module("mlp", std::make_shared<FeedForward>(config))),
        drop(register_module("drop", nn::Dropout(config.dropout))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor attended = x + drop(attn->forward(ln_1(x)));
    return attended + drop(mlp->forward(ln_2(attended)));
  }

  nn::LayerNorm ln_1;
  std::shared_ptr<Gpt2Attention> attn;
  nn::LayerNorm ln_2;
  std::shared_ptr<FeedForward> mlp;
  nn::Dropout drop;
};

class Gpt2 final : public TextModel {
 public:
  explicit Gpt2(const Gpt2Config& config)
      : config_(config),
        wte_(register_module("wte", nn::Embedding(config.vocab_size, config.width))),
        wpe_(register_module("wpe", nn::Embedding(config.max_length, config.width))),
        drop_(register_module("drop", nn::Dropout(config.dropout))),
        h_(register_module("h", nn::ModuleList())) {
    for (int64_t i = 0; i < config.layers; ++i) h_->push_back(std::make_shared<Block>(config));
    ln_f_ = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    init_like_transformers(*this);
  }

  TextTask task() const override { return TextTask::language_modelling; }

  at::Tensor forward(at::Tensor tokens) override {
    check_tokens("gpt2", tokens, config_.max_length);
    at::Tensor x = drop_(wte_(tokens) + wpe_->weight.narrow(0, 0, tokens.size(1)));
    for (const auto& block : *h_) x = block->as<Block>()->forward(x);
    return torch::linear(ln_f_(x), wte_->weight);
  }

 private:
  Gpt2Config config_;
  nn::Embedding wte_, wpe_;
  nn::Dropout drop_;
  nn::ModuleList h_;
  nn::LayerNorm ln_f_{nullptr};
};

}  // namespace

Gpt2Config Gpt2Config::small() {
  return {};
}

Gpt2Config Gpt2Config::medium() {
  return {.width = 1024, .layers = 24, .heads = 16};
}

Gpt2Config Gpt2Config::tiny() {
  return {.vocab_size = 256,
          .max_length = 256,
          .width = 128,
          .layers = 2,
          .heads = 2,
          .dropout = 0,
          .attention_dropout = 0};
}

void Gpt2Config::validate() const {
  check_option("gpt2", "vocab_size", vocab_size);
  check_option("gpt2", "max_length", max_length);
  check_option("gpt2", "width", width);
  check_option("gpt2", "layers", layers);
  check_heads("gpt2", width, heads);
  check_rate("gpt2", "dropout", dropout);
  check_rate("gpt2", "attention_dropout", attention_dropout);
}

std::shared_ptr<TextModel> make_gpt2(const Gpt2Config& config) {
  config.validate();
  return std::make_shared<Gpt2>(config);
}

}  // namespace ulp::models
