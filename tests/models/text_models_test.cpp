// The text networks: names and sizes of the published ones, their formulas spelled out again, their errors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "parameter_count.h"
#include "ulp/base/error.h"
#include "ulp/models/bert.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"
#include "ulp/models/text_registry.h"

namespace {

using namespace ulp::models;

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, -2), targets.flatten());
}

std::vector<std::string> names(const torch::nn::Module& model) {
  std::vector<std::string> result;
  for (const auto& item : model.named_parameters()) result.push_back(item.key());
  return result;
}

/// `layer` and what follows it, with weight and bias of each.
std::vector<std::string> with_parts(const std::string& prefix, const std::vector<std::string>& layers) {
  std::vector<std::string> result;
  for (const std::string& layer : layers) {
    for (const char* part : {".weight", ".bias"}) result.push_back(prefix + layer + part);
  }
  return result;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// By name, with the formulas of the layers that the published networks are made of.
struct Weights {
  torch::OrderedDict<std::string, at::Tensor> tensors;

  const at::Tensor& operator[](const std::string& name) const { return tensors[name]; }
  at::Tensor linear(const std::string& layer, const at::Tensor& x) const {
    return torch::matmul(x, tensors[layer + ".weight"].t()) + tensors[layer + ".bias"];
  }
  at::Tensor conv1d(const std::string& layer, const at::Tensor& x) const {
    return torch::matmul(x, tensors[layer + ".weight"]) + tensors[layer + ".bias"];
  }
  at::Tensor norm(const std::string& layer, const at::Tensor& x, double eps) const {
    const auto mean = x.mean(-1, true);
    const auto variance = (x - mean).square().mean(-1, true);
    return (x - mean) / (variance + eps).sqrt() * tensors[layer + ".weight"] + tensors[layer + ".bias"];
  }
};

/// Attention one head and one text at a time. `visible` (B, S, S) says which keys a query sees.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                     const at::Tensor& visible) {
  const int64_t size = q.size(2) / heads;
  at::Tensor out = torch::empty_like(q);
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto part = [&](const at::Tensor& x) { return x[b].narrow(1, h * size, size); };
      const auto scores = torch::matmul(part(q), part(k).t()) / std::sqrt(static_cast<double>(size));
      const auto weights = torch::softmax(scores.masked_fill(visible[b].logical_not(), -1e30), /*dim=*/1);
      part(out).copy_(torch::matmul(weights, part(v)));
    }
  }
  return out;
}

at::Tensor tokens_of(int64_t batch, int64_t length) {
  torch::manual_seed(9);
  return torch::randint(1, 50, {batch, length}, at::kLong);
}

/// Small, but with every part; parameters away from their start, where biases are 0.
template <typename Model>
Weights shaken(Model& model) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(8);
  for (auto& parameter : model.parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
  model.eval();
  return {model.named_parameters()};
}

/// Of BERT or DistilBERT.
template <typename Config>
Config small_encoder() {
  Config config;
  config.vocab_size = 50;
  config.max_length = 9;
  config.width = 16;
  config.layers = 2;
  config.heads = 4;
  config.intermediate = 24;
  config.num_classes = 3;
  config.padding_token = 0;
  return config;
}

constexpr double kTolerance = 1e-5;  // fp32 sums of at most 64 terms of size about 1, a few layers deep

TEST(Bert, NamesAndSizesArePublishedOnes) {
  const auto model = make_bert(BertConfig::base());
  EXPECT_EQ(parameter_count(*model), 109'482'240 + 768 * 2 + 2);
  std::vector<std::string> expected = {"bert.embeddings.word_embeddings.weight",
                                       "bert.embeddings.position_embeddings.weight",
                                       "bert.embeddings.token_type_embeddings.weight"};
  append(expected, with_parts("bert.embeddings.", {"LayerNorm"}));
  for (int i = 0; i < 12; ++i) {
    append(expected, with_parts("bert.encoder.layer." + std::to_string(i) + '.',
                                {"attention.self.query", "attention.self.key", "attention.self.value",
                                 "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
                                 "output.dense", "output.LayerNorm"}));
  }
  append(expected, with_parts("", {"bert.pooler.dense", "classifier"}));
  EXPECT_EQ(names(*model), expected);
  EXPECT_EQ(model->named_parameters()["bert.encoder.layer.11.intermediate.dense.weight"].sizes(),
            (std::vector<int64_t>{3072, 768}));
}

TEST(Bert, ComputesThePapersFormulas) {
  const auto config = small_encoder<BertConfig>();
  const auto model = make_bert(config);
  const Weights w = shaken(*model);
  at::Tensor tokens = tokens_of(3, 7);
  tokens[1].narrow(0, 4, 3).zero_();  // padding
  const auto visible = tokens.ne(0).unsqueeze(1).expand({3, 7, 7});

  const std::string e = "bert.embeddings.";
  at::Tensor x = w[e + "word_embeddings.weight"].index_select(0, tokens.flatten()).view({3, 7, 16}) +
                 w[e + "position_embeddings.weight"].narrow(0, 0, 7) +
                 w[e + "token_type_embeddings.weight"][0];
  x = w.norm(e + "LayerNorm", x, 1e-12);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string l = "bert.encoder.layer." + std::to_string(i) + '.';
    const auto mixed =
        attention(w.linear(l + "attention.self.query", x), w.linear(l + "attention.self.key", x),
                  w.linear(l + "attention.self.value", x), config.heads, visible);
    x = w.norm(l + "attention.output.LayerNorm", w.linear(l + "attention.output.dense", mixed) + x, 1e-12);
    const auto inner = w.linear(l + "intermediate.dense", x);
    const auto gelu = inner * 0.5 * (1 + torch::erf(inner / std::sqrt(2.0)));
    x = w.norm(l + "output.LayerNorm", w.linear(l + "output.dense", gelu) + x, 1e-12);
  }
  const auto expected = w.linear("classifier", torch::tanh(w.linear("bert.pooler.dense", x.select(1, 0))));
  EXPECT_TRUE(torch::allclose(model->forward(tokens), expected, kTolerance, kTolerance))
      << (model->forward(tokens) - expected).abs().max();
}

TEST(Bert, WhatIsPaddingDoesNotChangeTheResult) {
  BertConfig config = BertConfig::tiny();
  const auto model = make_bert(config);
  model->eval();
  const auto text = tokens_of(1, 10);
  const auto padded = torch::cat({text, torch::zeros({1, 6}, at::kLong)}, 1);
  EXPECT_TRUE(torch::allclose(model->forward(text), model->forward(padded), kTolerance, kTolerance));
  config.padding_token = -1;
  const auto blind = make_bert(config);
  blind->eval();
  EXPECT_FALSE(torch::allclose(blind->forward(text), blind->forward(padded), kTolerance, kTolerance));
}

TEST(Gpt2, NamesAndSizesArePublishedOnes) {
  const auto model = make_gpt2(Gpt2Config::small());
  EXPECT_EQ(parameter_count(*model), 124'439'808);
  std::vector<std::string> expected = {"wte.weight", "wpe.weight"};
  for (int i = 0; i < 12; ++i) {
    append(expected, with_parts("h." + std::to_string(i) + '.',
                                {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}));
  }
  append(expected, with_parts("", {"ln_f"}));
  EXPECT_EQ(names(*model), expected);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["h.3.attn.c_attn.weight"].sizes(), (std::vector<int64_t>{768, 2304}));
  const double deviation = parameters["h.0.mlp.c_proj.weight"].std().item<double>();
  EXPECT_NEAR(deviation, 0.02 / std::sqrt(24.0), 1e-5);
}

TEST(Gpt2, ComputesThePapersFormulas) {
  const Gpt2Config config{.vocab_size = 50, .max_length = 9, .width = 16, .layers = 2, .heads = 4};
  const auto model = make_gpt2(config);
  const Weights w = shaken(*model);
  const at::Tensor tokens = tokens_of(2, 7);
  const auto visible = torch::ones({7, 7}).tril().to(at::kBool).unsqueeze(0).expand({2, 7, 7});

  at::Tensor x =
      w["wte.weight"].index_select(0, tokens.flatten()).view({2, 7, 16}) + w["wpe.weight"].narrow(0, 0, 7);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string l = "h." + std::to_string(i) + '.';
    const auto qkv = w.conv1d(l + "attn.c_attn", w.norm(l + "ln_1", x, 1e-5)).chunk(3, 2);
    x = x + w.conv1d(l + "attn.c_proj", attention(qkv[0], qkv[1], qkv[2], config.heads, visible));
    const auto inner = w.conv1d(l + "mlp.c_fc", w.norm(l + "ln_2", x, 1e-5));
    const auto gelu =
        inner * 0.5 * (1 + torch::tanh(std::sqrt(2 / M_PI) * (inner + 0.044715 * inner.pow(3))));
    x = x + w.conv1d(l + "mlp.c_proj", gelu);
  }
  const auto expected = torch::matmul(w.norm("ln_f", x, 1e-5), w["wte.weight"].t());
  EXPECT_TRUE(torch::allclose(model->forward(tokens), expected, kTolerance, kTolerance))
      << (model->forward(tokens) - expected).abs().max();
}

TEST(Gpt2, APositionDoesNotSeeWhatComesAfterIt) {
  const auto model = make_gpt2(Gpt2Config::tiny());
  model->eval();
  const auto tokens = tokens_of(1, 12);
  auto changed = tokens.clone();
  changed[0][8] = 255;
  const auto before = model->forward(tokens), after = model->forward(changed);
  EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 8), after.narrow(1, 0, 8), 0, kTolerance));
  EXPECT_FALSE(torch::allclose(before.narrow(1, 8, 4), after.narrow(1, 8, 4), 0, kTolerance));
}

TEST(Lstm, NamesSizesAndPadding) {
  const auto model = make_lstm({.embedding = 5, .hidden = 6, .layers = 2});
  EXPECT_EQ(names(*model), (std::vector<std::string>{
                               "embedding.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0",
                               "lstm.bias_ih_l0", "lstm.bias_hh_l0", "lstm.weight_ih_l1", "lstm.weight_hh_l1",
                               "lstm.bias_ih_l1", "lstm.bias_hh_l1", "head.weight", "head.bias"}));
  EXPECT_EQ(parameter_count(*model), 256 * 5 + 24 * (5 + 6 + 2) + 24 * (6 + 6 + 2) + 256 * 6 + 256);
  const auto classifier = make_lstm({.num_classes = 3, .padding_token = 0});
  const auto text = tokens_of(2, 10);
  const auto padded = torch::cat({text, torch::zeros({2, 6}, at::kLong)}, 1);
  EXPECT_TRUE(
      torch::allclose(classifier->forward(text), classifier->forward(padded), kTolerance, kTolerance));
}

TEST(DistilBert, NamesAndSizesArePublishedOnes) {
  const auto model = make_distilbert(DistilBertConfig::base());
  EXPECT_EQ(parameter_count(*model), 66'362'880 + 768 * 769 + 2 * 769);
  std::vector<std::string> expected = {"distilbert.embeddings.word_embeddings.weight",
                                       "distilbert.embeddings.position_embeddings.weight"};
  append(expected, with_parts("distilbert.embeddings.", {"LayerNorm"}));
  for (int i = 0; i < 6; ++i) {
    append(expected, with_parts("distilbert.transformer.layer." + std::to_string(i) + '.',
                                {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
                                 "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"}));
  }
  append(expected, with_parts("", {"pre_classifier", "classifier"}));
  EXPECT_EQ(names(*model), expected);
}

TEST(DistilBert, ComputesThePapersFormulas) {
  const auto config = small_encoder<DistilBertConfig>();
  const auto model = make_distilbert(config);
  const Weights w = shaken(*model);
  at::Tensor tokens = tokens_of(2, 7);
  tokens.narrow(1, 5, 2).zero_();
  const at::Tensor seen = tokens.ne(0).unsqueeze(1).expand({2, 7, 7});
  const std::string embeddings = "distilbert.embeddings.";
  at::Tensor x = w.norm(embeddings + "LayerNorm",
                        torch::embedding(w[embeddings + "word_embeddings.weight"], tokens) +
                            w[embeddings + "position_embeddings.weight"].narrow(0, 0, 7),
                        1e-12);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "distilbert.transformer.layer." + std::to_string(i) + ".";
    const auto part = [&](const char* name) { return w.linear(layer + "attention." + name, x); };
    const at::Tensor mixed = attention(part("q_lin"), part("k_lin"), part("v_lin"), config.heads, seen);
    x = w.norm(layer + "sa_layer_norm", w.linear(layer + "attention.out_lin", mixed) + x, 1e-12);
    const at::Tensor wide = torch::gelu(w.linear(layer + "ffn.lin1", x));
    x = w.norm(layer + "output_layer_norm", w.linear(layer + "ffn.lin2", wide) + x, 1e-12);
  }
  const at::Tensor expected = w.linear("classifier", torch::relu(w.linear("pre_classifier", x.select(1, 0))));
  EXPECT_TRUE(torch::allclose(model->forward(tokens), expected, kTolerance, kTolerance));
}

struct Case {
  std::string name;
  TextTask task;
};

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const auto& name : text_model_names()) {
    for (TextTask task : text_model_tasks(name)) cases.push_back({name, task});
  }
  return cases;
}

class EveryTextModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
  static TextModelOptions options() {
    return {
        .task = GetParam().task, .vocab_size = 60, .max_length = 16, .num_classes = 4, .padding_token = 0};
  }
};

TEST_P(EveryTextModel, RunsInBothModesAndGivesEveryParameterAGradient) {
  torch::manual_seed(1);
  const auto model = make_text_model(GetParam().name, options());
  const bool classifies = GetParam().task == TextTask::classification;
  EXPECT_EQ(model->task(), GetParam().task);
  const auto tokens = tokens_of(3, 12);
  const auto targets = classifies ? torch::tensor({0, 3, 1}) : tokens;
  const auto logits = model->forward(tokens);
  EXPECT_EQ(logits.sizes(), (classifies ? std::vector<int64_t>{3, 4} : std::vector<int64_t>{3, 12, 60}));
  const auto loss = loss_of(logits, targets);
  EXPECT_EQ(loss.dim(), 0);
  loss.backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
  model->eval();
  EXPECT_TRUE(torch::equal(model->forward(tokens), model->forward(tokens)));
}

TEST_P(EveryTextModel, LearnsAFewTextsByHeart) {
  torch::manual_seed(4);
  const auto model = make_text_model(GetParam().name, options());
  const auto tokens = tokens_of(4, 9);
  const auto inputs = tokens.narrow(1, 0, 8);
  const auto targets = GetParam().task == TextTask::classification ? torch::tensor({0, 1, 2, 3})
                                                                   : tokens.narrow(1, 1, 8).contiguous();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(model->forward(inputs), targets);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
}

TEST_P(EveryTextModel, TheSeedFixesTheParameters) {
  const auto made = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return make_text_model(GetParam().name, options())->parameters();
  };
  const auto first = made(5), again = made(5), other = made(6);
  bool differs = false;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i], again[i]));
    differs = differs || !torch::equal(first[i], other[i]);
  }
  EXPECT_TRUE(differs);
}

TEST_P(EveryTextModel, WrongTokensAndOptionsAreErrorsThatNameTheModel) {
  const auto model = make_text_model(GetParam().name, options());
  const auto refuse = [&](const at::Tensor& tokens) {
    try {
      model->forward(tokens);
      ADD_FAILURE() << "accepted " << tokens.toString() << " of " << tokens.sizes();
    } catch (const ulp::Error& error) {
      EXPECT_NE(std::string(error.what()).find(GetParam().name), std::string::npos) << error.what();
    }
  };
  refuse(torch::zeros({2, 17}, at::kLong));
  refuse(torch::zeros({2, 0}, at::kLong));
  refuse(torch::zeros({2, 3}, at::kInt));
  refuse(torch::zeros({3}, at::kLong));
  const auto make = [&](auto change) {
    TextModelOptions changed = options();
    change(changed);
    return make_text_model(GetParam().name, changed);
  };
  EXPECT_THROW(make([](auto& o) { o.vocab_size = 0; }), ulp::Error);
  EXPECT_THROW(make([](auto& o) { o.max_length = 0; }), ulp::Error);
  if (GetParam().task == TextTask::classification) {
    EXPECT_THROW(make([](auto& o) { o.num_classes = 0; }), ulp::Error);
    EXPECT_THROW(make([](auto& o) { o.padding_token = -2; }), ulp::Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryTextModel, ::testing::ValuesIn(every_case()), [](const auto& info) {
  return info.param.name + (info.param.task == TextTask::classification ? "_classifies" : "_predicts");
});

TEST(TextModels, NamesAreSortedAndUnknownNamesAndTasksAreErrors) {
  const auto names = text_model_names();
  EXPECT_FALSE(names.empty());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_THROW(make_text_model("gpt3"), ulp::Error);
  EXPECT_THROW(text_model_tasks("gpt3"), ulp::Error);
  EXPECT_THROW(make_text_model("bert", {.task = TextTask::language_modelling}), ulp::Error);
  EXPECT_THROW(make_text_model("gpt2", {.task = TextTask::classification}), ulp::Error);
}

TEST(TextModels, PublishedSizesHaveNames) {
  const auto names = pretrained_text_names();
  EXPECT_EQ(names, (std::vector<std::string>{"bert-base", "bert-large", "distilbert-base", "gpt2-medium",
                                             "gpt2-small", "tinybert-4", "tinybert-6"}));
  EXPECT_EQ(pretrained_text_sizes("bert-large").max_length, 512);
  EXPECT_EQ(pretrained_text_sizes("gpt2-medium").vocab_size, 50257);
  EXPECT_EQ(parameter_count(*make_pretrained_text("gpt2-small")), 124'439'808);
  // Below the classifiers: two classes, and DistilBERT's layer before them.
  EXPECT_EQ(parameter_count(*make_pretrained_text("tinybert-4")), 14'350'248 + 2 * (312 + 1));
  EXPECT_EQ(parameter_count(*make_pretrained_text("distilbert-base")), 66'362'880 + 768 * 769 + 2 * 769);
  EXPECT_THROW(pretrained_text_sizes("bert-small"), ulp::Error);
  EXPECT_THROW(make_pretrained_text("bert-small"), ulp::Error);
}

TEST(TextModels, ConfigurationsThatCannotBeAreErrors) {
  EXPECT_THROW(make_bert({.width = 10, .heads = 3}), ulp::Error);
  EXPECT_THROW(make_bert({.dropout = 1.0}), ulp::Error);
  EXPECT_THROW(make_bert({.attention_dropout = -0.1}), ulp::Error);
  EXPECT_THROW(make_bert({.layers = 0}), ulp::Error);
  EXPECT_THROW(make_distilbert({.width = 10, .heads = 3}), ulp::Error);
  EXPECT_THROW(make_distilbert({.classifier_dropout = 1}), ulp::Error);
  EXPECT_THROW(make_gpt2({.width = 10, .heads = 0}), ulp::Error);
  EXPECT_THROW(make_gpt2({.dropout = std::nan("")}), ulp::Error);
  EXPECT_THROW(make_lstm({.hidden = 0}), ulp::Error);
  EXPECT_THROW(make_lstm({.dropout = 2}), ulp::Error);
}

}  // namespace
