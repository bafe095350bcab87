#include "ulp/models/bert.h"

#include "ulp/models/text_layers.h"

namespace ulp::models {

namespace {

namespace nn = torch::nn;

constexpr int64_t kTokenTypes = 2;
constexpr std::array<const char*, 3> kAttention = {"query", "key", "value"};

/// A linear layer whose result is dropped out, added to `residual` and normalised.
struct Output final : nn::Module {
  Output(int64_t in, const BertConfig& config)
      : dense(register_module("dense", nn::Linear(in, config.width))),
        norm(register_module("LayerNorm", bert_norm(config.width))),
        dropout(register_module("dropout", nn::Dropout(config.dropout))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual) {
    return norm(dropout(dense(x)) + residual);
  }

  nn::Linear dense;
  nn::LayerNorm norm;
  nn::Dropout dropout;
};

struct BertAttention final : nn::Module {
  explicit BertAttention(const BertConfig& config)
      : self(register_module("self", std::make_shared<SelfAttention>(config, kAttention))),
        output(register_module("output", std::make_shared<Output>(config.width, config))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    return output->forward(self->forward(x, mask), x);
  }

  std::shared_ptr<SelfAttention> self;
  std::shared_ptr<Output> output;
};

/// One linear layer under a name of its own: "intermediate.dense", "pooler.dense".
struct Dense final : nn::Module {
  Dense(int64_t in, int64_t out) : dense(register_module("dense", nn::Linear(in, out))) {}
  nn::Linear dense;
};

struct BertLayer final : nn::Module {
  explicit BertLayer(const BertConfig& config)
      : attention(register_module("attention", std::make_shared<BertAttention>(config))),
        intermediate(
            register_module("intermediate", std::make_shared<Dense>(config.width, config.intermediate))),
        output(register_module("output", std::make_shared<Output>(config.intermediate, config))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
    const at::Tensor attended = attention->forward(x, mask);
    return output->forward(torch::gelu(intermediate->dense(attended)), attended);
  }

  std::shared_ptr<BertAttention> attention;
  std::shared_ptr<Dense> intermediate;
  std::shared_ptr<Output> output;
};

struct Trunk final : nn::Module {
  explicit Trunk(const BertConfig& config)
      : embeddings(register_module("embeddings", std::make_shared<BertEmbeddings>(config, kTokenTypes))),
        encoder(register_module("encoder", std::make_shared<LayerStack<BertLayer>>(config))),
        pooler(register_module("pooler", std::make_shared<Dense>(config.width, config.width))) {}

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask) {
    const at::Tensor hidden = encoder->forward(embeddings->forward(tokens), mask);
    return torch::tanh(pooler->dense(hidden.select(1, 0)));
  }

  std::shared_ptr<BertEmbeddings> embeddings;
  std::shared_ptr<LayerStack<BertLayer>> encoder;
  std::shared_ptr<Dense> pooler;
};

class Bert final : public TextModel {
 public:
  explicit Bert(const BertConfig& config)
      : config_(config),
        bert_(register_module("bert", std::make_shared<Trunk>(config))),
        dropout_(register_module("dropout", nn::Dropout(config.dropout))),
        classifier_(register_module("classifier", nn::Linear(config.width, config.num_classes))) {
    init_like_transformers(*this);
  }

  TextTask task() const override { return TextTask::classification; }

  at::Tensor forward(at::Tensor tokens) override {
    check_tokens("bert", tokens, config_.max_length);
    const at::Tensor mask = padding_mask(tokens, config_.padding_token);
    return classifier_(dropout_(bert_->forward(tokens, mask)));
  }

 private:
  BertConfig config_;
  std::shared_ptr<Trunk> bert_;
  nn::Dropout dropout_;
  nn::Linear classifier_;
};

}  // namespace

BertConfig BertConfig::base() {
  return {};
}

BertConfig BertConfig::large() {
  return {.width = 1024, .layers = 24, .heads = 16, .intermediate = 4096};
}

BertConfig BertConfig::tinybert4() {
  return {.width = 312, .layers = 4, .intermediate = 1200};
}

BertConfig BertConfig::tinybert6() {
  return {.layers = 6};
}

BertConfig BertConfig::tiny() {
  return {.vocab_size = 256,
          .max_length = 256,
          .width = 128,
          .layers = 2,
          .heads = 2,
          .intermediate = 512,
          .padding_token = 0};
}

void BertConfig::validate() const {
  check_encoder("bert", *this);
}

std::shared_ptr<TextModel> make_bert(const BertConfig& config) {
  config.validate();
  return std::make_shared<Bert>(config);
}

}  // namespace ulp::models
