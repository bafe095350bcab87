#include "ulp/models/lstm.h"

#include <torch/nn/modules/rnn.h>

#include "ulp/models/layers.h"
#include "ulp/models/text_layers.h"

namespace ulp::models {

namespace {

namespace nn = torch::nn;

class Lstm final : public TextModel {
 public:
  explicit Lstm(const LstmConfig& config)
      : config_(config),
        embedding_(register_module("embedding", nn::Embedding(config.vocab_size, config.embedding))),
        lstm_(register_module("lstm", nn::LSTM(nn::LSTMOptions(config.embedding, config.hidden)
                                                   .num_layers(config.layers)
                                                   .dropout(config.layers > 1 ? config.dropout : 0.0)
                                                   .batch_first(true)))),
        dropout_(register_module("dropout", nn::Dropout(config.dropout))),
        head_(register_module(
            "head",
            nn::Linear(config.hidden, config.num_classes > 0 ? config.num_classes : config.vocab_size))) {}

  TextTask task() const override {
    return config_.num_classes > 0 ? TextTask::classification : TextTask::language_modelling;
  }

  at::Tensor forward(at::Tensor tokens) override {
    check_tokens("lstm", tokens, config_.max_length);
    at::Tensor hidden = std::get<0>(lstm_(embedding_(tokens)));
    if (task() == TextTask::classification) hidden = mean_over_text(hidden, tokens);
    return head_(dropout_(hidden));
  }

 private:
  at::Tensor mean_over_text(const at::Tensor& hidden, const at::Tensor& tokens) const {
    if (config_.padding_token < 0) return hidden.mean(1);
    const at::Tensor padding = tokens.eq(config_.padding_token).unsqueeze(2);
    return hidden.masked_fill(padding, 0).sum(1) / padding.logical_not().sum(1).clamp_min(1);
  }

  LstmConfig config_;
  nn::Embedding embedding_;
  nn::LSTM lstm_;
  nn::Dropout dropout_;
  nn::Linear head_;
};

}  // namespace

void LstmConfig::validate() const {
  check_option("lstm", "vocab_size", vocab_size);
  check_option("lstm", "max_length", max_length);
  check_option("lstm", "embedding", embedding);
  check_option("lstm", "hidden", hidden);
  check_option("lstm", "layers", layers);
  check_option("lstm", "num_classes", num_classes, 0);
  check_option("lstm", "padding_token", padding_token, -1);
  check_rate("lstm", "dropout", dropout);
}

std::shared_ptr<TextModel> make_lstm(const LstmConfig& config) {
  config.validate();
  return std::make_shared<Lstm>(config);
}

}  // namespace ulp::models
