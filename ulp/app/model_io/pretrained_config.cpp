#include "ulp/app/model_io/pretrained_config.h"

#include "ulp/app/model_io/pretrained_decoder.h"
#include "ulp/app/model_io/pretrained_settings.h"
#include "ulp/base/error.h"

namespace ulp::app {

namespace {

using Json = PretrainedSettings::Json;

/// "bert" of older files that do not say it, TinyBERT's among them, by the spelling of the width.
std::string name_of(const PretrainedSettings& settings) {
  if (!settings.has("model_type")) {
    for (const auto& [key, name] :
         {std::pair("hidden_size", "bert"), {"dim", "distilbert"}, {"n_embd", "gpt2"}})
      if (settings.has(key)) return name;
    settings.refuse("expected a model_type");
  }
  settings.expect("model_type", {"bert", "distilbert", "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma",
                                 "gemma2", "gemma3_text", "phi3", "stablelm"});
  return settings["model_type"].get<std::string>();
}

models::BertConfig bert(const PretrainedSettings& settings) {
  models::BertConfig config;
  config.padding_token = 0;
  settings.size("vocab_size", config.vocab_size, PretrainedSettings::kMostTokens);
  settings.size("max_position_embeddings", config.max_length);
  settings.size("hidden_size", config.width);
  settings.size("num_hidden_layers", config.layers, PretrainedSettings::kMostLayers);
  settings.size("num_attention_heads", config.heads);
  settings.size("intermediate_size", config.intermediate);
  settings.size("pad_token_id", config.padding_token, PretrainedSettings::kMostTokens, 0);
  settings.rate("hidden_dropout_prob", config.dropout);
  settings.rate("attention_probs_dropout_prob", config.attention_dropout);
  settings.expect("hidden_act", {"gelu"});
  settings.expect("layer_norm_eps", {1e-12});
  settings.expect("position_embedding_type", {"absolute"});
  settings.expect("type_vocab_size", {2});
  settings.expect("is_decoder", {false});
  return config;
}

models::DistilBertConfig distilbert(const PretrainedSettings& settings) {
  models::DistilBertConfig config;
  config.padding_token = 0;
  settings.size("vocab_size", config.vocab_size, PretrainedSettings::kMostTokens);
  settings.size("max_position_embeddings", config.max_length);
  settings.size("dim", config.width);
  settings.size("n_layers", config.layers, PretrainedSettings::kMostLayers);
  settings.size("n_heads", config.heads);
  settings.size("hidden_dim", config.intermediate);
  settings.size("pad_token_id", config.padding_token, PretrainedSettings::kMostTokens, 0);
  settings.rate("dropout", config.dropout);
  settings.rate("attention_dropout", config.attention_dropout);
  settings.rate("seq_classif_dropout", config.classifier_dropout);
  settings.expect("activation", {"gelu"});
  return config;
}

models::Gpt2Config gpt2(const PretrainedSettings& settings) {
  models::Gpt2Config config;
  settings.size("vocab_size", config.vocab_size, PretrainedSettings::kMostTokens);
  settings.size("n_positions", config.max_length);
  settings.size("n_embd", config.width);
  settings.size("n_layer", config.layers, PretrainedSettings::kMostLayers);
  settings.size("n_head", config.heads);
  settings.rate("resid_pdrop", config.dropout);
  settings.rate("attn_pdrop", config.attention_dropout);
  settings.expect("n_inner", {4 * config.width});
  settings.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  settings.expect("layer_norm_epsilon", {1e-5});
  settings.expect("scale_attn_weights", {true});
  settings.expect("scale_attn_by_inverse_layer_idx", {false});
  settings.expect("tie_word_embeddings", {true});
  return config;
}

/// {"0": "good", "1": "bad"}: two made-up ones where there is none.
std::vector<std::string> classes(const PretrainedSettings& settings) {
  int64_t count = 2;
  settings.size("num_labels", count);
  std::vector<std::string> names;
  if (!settings.has("id2label")) {
    for (int64_t i = 0; i < count; ++i) names.push_back("LABEL_" + std::to_string(i));
    return names;
  }
  const Json& labels = settings["id2label"];
  if (!labels.is_object() || labels.empty() ||
      labels.size() > static_cast<size_t>(PretrainedSettings::kLargestSize))
    settings.refuse("expected 1 to ", PretrainedSettings::kLargestSize, " names in id2label");
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = labels.find(std::to_string(i));
    if (label == labels.end() || !label->is_string())
      settings.refuse("expected a name of class ", i, " in id2label");
    names.push_back(label->get<std::string>());
  }
  return names;
}

bool classifies(const PretrainedSettings& settings) {
  if (!settings.has("architectures") || !settings["architectures"].is_array()) return false;
  for (const Json& one : settings["architectures"])
    if (one.is_string() && one.get<std::string>().ends_with("ForSequenceClassification")) return true;
  return false;
}

/// Refuses settings that change networks of several kinds.
void refuse_changes(const PretrainedSettings& settings, const std::string& name) {
  if (settings.has("per_layer_config"))
    settings.refuse("expected layers that are alike, got per_layer_config");
  if (name != "gpt2" && !is_decoder_family(name)) return;
  settings.expect("is_causal", {true});
  if (settings.is_null("is_causal"))  // which transformers takes as false
    settings.refuse("expected is_causal true, got null");
}

bool made_up(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] != "LABEL_" + std::to_string(i)) return false;
  return true;
}

std::shared_ptr<models::TextModel> make_of(const models::BertConfig& config) {
  return models::make_bert(config);
}
std::shared_ptr<models::TextModel> make_of(const models::DistilBertConfig& config) {
  return models::make_distilbert(config);
}
std::shared_ptr<models::TextModel> make_of(const models::Gpt2Config& config) {
  return models::make_gpt2(config);
}
std::shared_ptr<models::TextModel> make_of(const models::DecoderConfig& config) {
  return models::make_decoder(config);
}

int64_t config_elements(const models::Gpt2Config& config) {
  return (config.vocab_size + config.max_length) * config.width +
         config.layers * 12 * config.width * config.width;
}
int64_t config_elements(const models::DecoderConfig& config) {
  const int64_t heads = 2 * (config.heads + config.kv_heads) * config.head_size;
  return (config.tied_embeddings ? 1 : 2) * config.vocab_size * config.width +
         config.layers * config.width * (heads + 3 * config.intermediate);
}
template <typename Config>
int64_t config_elements(const Config& config) {
  return (config.vocab_size + config.max_length + config.num_classes) * config.width +
         config.layers * config.width * (4 * config.width + 2 * config.intermediate);
}

}  // namespace

bool PublishedConfig::writes() const {
  return name == "gpt2" || is_decoder_family(name);
}

int64_t PublishedConfig::vocab_size() const {
  return std::visit([](const auto& config) { return config.vocab_size; }, network);
}

int64_t PublishedConfig::max_length() const {
  return std::visit([](const auto& config) { return config.max_length; }, network);
}

int64_t PublishedConfig::elements() const {
  return std::visit([](const auto& config) { return config_elements(config); }, network);
}

std::shared_ptr<models::TextModel> PublishedConfig::make() const {
  return std::visit([](const auto& config) { return make_of(config); }, network);
}

PublishedConfig read_published_config(const std::filesystem::path& path) {
  const PretrainedSettings settings(path);
  PublishedConfig read{.name = name_of(settings),
                       .network = {},
                       .class_names = {},
                       .positions = 0,
                       .classifies = classifies(settings)};
  refuse_changes(settings, read.name);
  if (read.name == "gpt2") {
    read.network = gpt2(settings);
  } else if (is_decoder_family(read.name)) {
    read.network = decoder_config(settings, read.name);
    read.positions = decoder_positions(settings, read.name);
  } else {
    read.class_names = classes(settings);
    const auto count = static_cast<int64_t>(read.class_names.size());
    if (made_up(read.class_names)) read.class_names.clear();
    auto encoder = [&](auto config) {
      config.num_classes = count;
      read.network = config;
    };
    if (read.name == "bert")
      encoder(bert(settings));
    else
      encoder(distilbert(settings));
  }
  try {
    std::visit([](const auto& config) { config.validate(); }, read.network);
  } catch (const Error& error) {
    throw FileError(std::string(error.what()) + " in '" + path.string() + "'", error.info());
  }
  return read;
}

}  // namespace ulp::app
