#include "ulp/app/published_config.h"

#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/base/read_file.h"

namespace ulp::app {

namespace {

using Json = nlohmann::json;

constexpr const char* kReadPublishedConfigWhere = "app.read_published_config";
constexpr uintmax_t kMostBytes = uintmax_t{4} << 20;
constexpr int64_t kMostPublishedTokens = int64_t{1} << 24, kLargestPublishedSize = 65536, kMostLayers = 1024;

/// The settings of a file; errors name it.
class Settings {
 public:
  explicit Settings(const std::filesystem::path& path) : path_(path.string()) {
    try {
      json_ = parse_json(read_file(kReadPublishedConfigWhere, path, kMostBytes));
    } catch (const Json::exception& error) {
      fail_file(kReadPublishedConfigWhere, "expected JSON in '", path_, "': ", error.what());
    }
    if (!json_.is_object()) refuse("expected an object");
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const Json& operator[](const char* key) const { return json_.at(key); }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file(kReadPublishedConfigWhere, parts..., " in '", path_, "'");
  }

  void size(const char* key, int64_t& value, int64_t most = kLargestPublishedSize, int64_t least = 1) const {
    if (!has(key)) return;
    const Json& found = json_.at(key);
    if (!found.is_number_integer() || found < least || found > most)
      refuse("expected ", key, " in ", least, "..", most, ", got ", shown(found));
    value = found.get<int64_t>();
  }
  void rate(const char* key, double& value) const {
    if (!has(key)) return;
    const Json& found = json_.at(key);
    if (!found.is_number() || !(found >= 0.0 && found < 1.0))
      refuse("expected ", key, " in [0, 1), got ", shown(found));
    value = found.get<double>();
  }
  /// Refuses a setting that has another value than these; one that is missing has the first.
  void expect(const char* key, std::initializer_list<Json> values) const {
    if (!has(key)) return;
    std::string known;
    for (const Json& value : values) {
      if (json_.at(key) == value) return;
      known += (known.empty() ? "" : " or ") + value.dump();
    }
    refuse("expected ", key, " ", known, ", got ", shown(json_.at(key)));
  }

 private:
  static std::string shown(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
  }

  std::string path_;
  Json json_;
};

/// "bert" of older files that do not say it, TinyBERT's among them, by the spelling of the width.
std::string name_of(const Settings& settings) {
  if (!settings.has("model_type")) {
    for (const auto& [key, name] :
         {std::pair("hidden_size", "bert"), {"dim", "distilbert"}, {"n_embd", "gpt2"}})
      if (settings.has(key)) return name;
    settings.refuse("expected a model_type");
  }
  settings.expect("model_type", {"bert", "distilbert", "gpt2"});
  return settings["model_type"].get<std::string>();
}

models::BertConfig bert(const Settings& settings) {
  models::BertConfig config;
  config.padding_token = 0;
  settings.size("vocab_size", config.vocab_size, kMostPublishedTokens);
  settings.size("max_position_embeddings", config.max_length);
  settings.size("hidden_size", config.width);
  settings.size("num_hidden_layers", config.layers, kMostLayers);
  settings.size("num_attention_heads", config.heads);
  settings.size("intermediate_size", config.intermediate);
  settings.size("pad_token_id", config.padding_token, kMostPublishedTokens, 0);
  settings.rate("hidden_dropout_prob", config.dropout);
  settings.rate("attention_probs_dropout_prob", config.attention_dropout);
  settings.expect("hidden_act", {"gelu"});
  settings.expect("layer_norm_eps", {1e-12});
  settings.expect("position_embedding_type", {"absolute"});
  settings.expect("type_vocab_size", {2});
  settings.expect("is_decoder", {false});
  return config;
}

models::DistilBertConfig distilbert(const Settings& settings) {
  models::DistilBertConfig config;
  config.padding_token = 0;
  settings.size("vocab_size", config.vocab_size, kMostPublishedTokens);
  settings.size("max_position_embeddings", config.max_length);
  settings.size("dim", config.width);
  settings.size("n_layers", config.layers, kMostLayers);
  settings.size("n_heads", config.heads);
  settings.size("hidden_dim", config.intermediate);
  settings.size("pad_token_id", config.padding_token, kMostPublishedTokens, 0);
  settings.rate("dropout", config.dropout);
  settings.rate("attention_dropout", config.attention_dropout);
  settings.rate("seq_classif_dropout", config.classifier_dropout);
  settings.expect("activation", {"gelu"});
  return config;
}

models::Gpt2Config gpt2(const Settings& settings) {
  models::Gpt2Config config;
  settings.size("vocab_size", config.vocab_size, kMostPublishedTokens);
  settings.size("n_positions", config.max_length);
  settings.size("n_embd", config.width);
  settings.size("n_layer", config.layers, kMostLayers);
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
std::vector<std::string> classes(const Settings& settings) {
  int64_t count = 2;
  settings.size("num_labels", count);
  std::vector<std::string> names;
  if (!settings.has("id2label")) {
    for (int64_t i = 0; i < count; ++i) names.push_back("LABEL_" + std::to_string(i));
    return names;
  }
  const Json& labels = settings["id2label"];
  if (!labels.is_object() || labels.empty() || labels.size() > static_cast<size_t>(kLargestPublishedSize))
    settings.refuse("expected 1 to ", kLargestPublishedSize, " names in id2label");
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = labels.find(std::to_string(i));
    if (label == labels.end() || !label->is_string())
      settings.refuse("expected a name of class ", i, " in id2label");
    names.push_back(label->get<std::string>());
  }
  return names;
}

bool classifies(const Settings& settings) {
  if (!settings.has("architectures") || !settings["architectures"].is_array()) return false;
  for (const Json& one : settings["architectures"])
    if (one.is_string() && one.get<std::string>().ends_with("ForSequenceClassification")) return true;
  return false;
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

int64_t inner_of(const models::Gpt2Config& config) {
  return 4 * config.width;
}
template <typename Config>
int64_t inner_of(const Config& config) {
  return config.intermediate;
}

int64_t classes_of(const models::Gpt2Config&) {
  return 0;
}
template <typename Config>
int64_t classes_of(const Config& config) {
  return config.num_classes;
}

}  // namespace

int64_t PublishedConfig::vocab_size() const {
  return std::visit([](const auto& config) { return config.vocab_size; }, network);
}

int64_t PublishedConfig::max_length() const {
  return std::visit([](const auto& config) { return config.max_length; }, network);
}

int64_t PublishedConfig::elements() const {
  return std::visit(
      [](const auto& config) {
        const int64_t width = config.width;
        return (config.vocab_size + config.max_length + classes_of(config)) * width +
               config.layers * width * (4 * width + 2 * inner_of(config));
      },
      network);
}

std::shared_ptr<models::TextModel> PublishedConfig::make() const {
  return std::visit([](const auto& config) { return make_of(config); }, network);
}

PublishedConfig read_published_config(const std::filesystem::path& path) {
  const Settings settings(path);
  PublishedConfig read{
      .name = name_of(settings), .network = {}, .class_names = {}, .classifies = classifies(settings)};
  if (read.name == "gpt2") {
    read.network = gpt2(settings);
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
