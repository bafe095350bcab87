#include "ulp/models/distilbert.h"

#include "ulp/models/text_layers.h"

namespace ulp::models {

namespace {

namespace nn = torch::nn;

struct DistilAttention final : SelfAttention {
  explicit DistilAttention(const DistilBertConfig& config)
      : SelfAttention(config, {"q_lin", "k_lin", "v_lin"}),
        out_lin(register_module("out_lin", nn::Linear(config.width, config.width))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return out_lin(SelfAttention::forward(x, mask));
  }

  nn::Linear out_lin;
};

struct DistilFeedForward final : nn::Module {
  explicit DistilFeedForward(const DistilBertConfig& config)
      : lin1(register_module("lin1", nn::Linear(config.width, config.intermediate))),
        lin2(register_module("lin2", nn::Linear(config.intermediate, config.width))),
        dropout(register_module("dropout", nn::Dropout(config.dropout))) {}

  at::Tensor forward(const at::Tensor& x) { return dropout(lin2(torch::gelu(lin1(x)))); }

  nn::Linear lin1, lin2;
  nn::Dropout dropout;
};

struct DistilLayer final : nn::Module {
  explicit DistilLayer(const DistilBertConfig& config)
      : attention(register_module("attention", std::make_shared<DistilAttention>(config))),
        sa_layer_norm(register_module("sa_layer_norm", bert_norm(config.width))),
        ffn(register_module("ffn", std::make_shared<DistilFeedForward>(config))),
        output_layer_norm(register_module("output_layer_norm", bert_norm(config.width))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor attended = sa_layer_norm(attention->forward(x, mask) + x);
    return output_layer_norm(ffn->forward(attended) + attended);
  }

  std::shared_ptr<DistilAttention> attention;
  nn::LayerNorm sa_layer_norm;
  std::shared_ptr<DistilFeedForward> ffn;
  nn::LayerNorm output_layer_norm;
};

struct DistilTrunk final : nn::Module {
  explicit DistilTrunk(const DistilBertConfig& config)
      : embeddings(
            register_module("embeddings", std::make_shared<BertEmbeddings>(config, /*token_types=*/0))),
        transformer(register_module("transformer", std::make_shared<LayerStack<DistilLayer>>(config))) {}

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask) {
    return transformer->forward(embeddings->forward(tokens), mask);
  }

  std::shared_ptr<BertEmbeddings> embeddings;
  std::shared_ptr<LayerStack<DistilLayer>> transformer;
};

class DistilBert final : public TextModel {
 public:
  explicit DistilBert(const DistilBertConfig& config)
      : config_(config),
        distilbert_(register_module("distilbert", std::make_shared<DistilTrunk>(config))),
        pre_classifier_(register_module("pre_classifier", nn::Linear(config.width, config.width))),
        dropout_(register_module("dropout", nn::Dropout(config.classifier_dropout))),
        classifier_(register_module("classifier", nn::Linear(config.width, config.num_classes))) {
    init_like_transformers(*this);
  }

  TextTask task() const override { return TextTask::classification; }

  at::Tensor forward(at::Tensor tokens) override {
    check_tokens("distilbert", tokens, config_.max_length);
    const at::Tensor mask = padding_mask(tokens, config_.padding_token);
    const at::Tensor first = distilbert_->forward(tokens, mask).select(1, 0);
    return classifier_(dropout_(torch::relu(pre_classifier_(first))));
  }

 private:
  DistilBertConfig config_;
  std::shared_ptr<DistilTrunk> distilbert_;
  nn::Linear pre_classifier_;
  nn::Dropout dropout_;
  nn::Linear classifier_;
};

}  // namespace

DistilBertConfig DistilBertConfig::base() {
  return {};
}

DistilBertConfig DistilBertConfig::tiny() {
  return {.vocab_size = 256,
          .max_length = 256,
          .width = 128,
          .layers = 2,
          .heads = 2,
          .intermediate = 512,
          .padding_token = 0};
}

void DistilBertConfig::validate() const {
  check_encoder("distilbert", *this);
  check_rate("distilbert", "classifier_dropout", classifier_dropout);
}

std::shared_ptr<TextModel> make_distilbert(const DistilBertConfig& config) {
  config.validate();
  return std::make_shared<DistilBert>(config);
}

}  // namespace ulp::models
