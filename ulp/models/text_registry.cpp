#include "ulp/models/text_registry.h"

#include <algorithm>
#include <functional>
#include <map>
#include <variant>

#include "ulp/base/error.h"
#include "ulp/models/bert.h"
#include "ulp/models/decoder.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"

namespace ulp::models {

namespace {

struct Entry {
  std::vector<TextTask> tasks;
  std::function<std::shared_ptr<TextModel>(const TextModelOptions&)> make;
};

std::shared_ptr<TextModel> make(const BertConfig& config) {
  return make_bert(config);
}
std::shared_ptr<TextModel> make(const DistilBertConfig& config) {
  return make_distilbert(config);
}
std::shared_ptr<TextModel> make(const Gpt2Config& config) {
  return make_gpt2(config);
}

template <typename Config>
std::shared_ptr<TextModel> make_encoder(const TextModelOptions& options) {
  Config config = Config::tiny();
  config.vocab_size = options.vocab_size;
  config.max_length = options.max_length;
  config.num_classes = options.num_classes;
  config.padding_token = options.padding_token;
  return make(config);
}

std::shared_ptr<TextModel> make_gpt2_for(const TextModelOptions& options) {
  Gpt2Config config = Gpt2Config::tiny();
  config.vocab_size = options.vocab_size;
  config.max_length = options.max_length;
  return make_gpt2(config);
}

std::shared_ptr<TextModel> make_llama_for(const TextModelOptions& options) {
  DecoderConfig config = DecoderConfig::tiny();
  config.vocab_size = options.vocab_size;
  config.max_length = options.max_length;
  return make_decoder(config);
}

std::shared_ptr<TextModel> make_lstm_for(const TextModelOptions& options) {
  const bool classifies = options.task == TextTask::classification;
  if (classifies && options.num_classes < 1) {
    fail("models.make_text_model", "expected num_classes >= 1 for 'lstm', got ", options.num_classes);
  }
  return make_lstm({.vocab_size = options.vocab_size,
                    .max_length = options.max_length,
                    .num_classes = classifies ? options.num_classes : 0,
                    .padding_token = options.padding_token});
}

const std::map<std::string, Entry>& entries() {
  static const std::map<std::string, Entry> all = {
      {"bert", {{TextTask::classification}, make_encoder<BertConfig>}},
      {"distilbert", {{TextTask::classification}, make_encoder<DistilBertConfig>}},
      {"gpt2", {{TextTask::language_modelling}, make_gpt2_for}},
      {"llama", {{TextTask::language_modelling}, make_llama_for}},
      {"lstm", {{TextTask::language_modelling, TextTask::classification}, make_lstm_for}},
  };
  return all;
}

using PublishedConfig = std::variant<BertConfig, DistilBertConfig, Gpt2Config>;

const std::map<std::string, PublishedConfig>& published() {
  static const std::map<std::string, PublishedConfig> all = {{"bert-base", BertConfig::base()},
                                                             {"bert-large", BertConfig::large()},
                                                             {"distilbert-base", DistilBertConfig::base()},
                                                             {"tinybert-4", BertConfig::tinybert4()},
                                                             {"tinybert-6", BertConfig::tinybert6()},
                                                             {"gpt2-small", Gpt2Config::small()},
                                                             {"gpt2-medium", Gpt2Config::medium()}};
  return all;
}

template <typename Found>
std::vector<std::string> names_of(const std::map<std::string, Found>& table) {
  std::vector<std::string> names;
  for (const auto& [name, found] : table) names.push_back(name);
  return names;
}

/// What a table has under that name; an error lists its names.
template <typename Found>
const Found& find_in(const std::map<std::string, Found>& table, const std::string& name, const char* where) {
  const auto found = table.find(name);
  if (found != table.end()) return found->second;
  std::string known;
  for (const std::string& one : names_of(table)) known += (known.empty() ? "" : ", ") + one;
  fail(where, "expected one of ", known, ", got '", name, "'");
}

const Entry& find(const std::string& name) {
  return find_in(entries(), name, "models.make_text_model");
}

}  // namespace

std::shared_ptr<TextModel> make_text_model(const std::string& name, const TextModelOptions& options) {
  const Entry& entry = find(name);
  if (std::find(entry.tasks.begin(), entry.tasks.end(), options.task) == entry.tasks.end()) {
    const bool classifies = options.task == TextTask::classification;
    fail("models.make_text_model", "expected a network that ",
         classifies ? "classifies" : "predicts the next token", ", got '", name, "', which ",
         classifies ? "predicts the next token" : "classifies");
  }
  return entry.make(options);
}

std::vector<std::string> text_model_names() {
  return names_of(entries());
}

std::vector<TextTask> text_model_tasks(const std::string& name) {
  return find(name).tasks;
}

std::shared_ptr<TextModel> make_pretrained_text(const std::string& name) {
  return std::visit([](const auto& config) { return make(config); },
                    find_in(published(), name, "models.make_pretrained_text"));
}

TextSizes pretrained_text_sizes(const std::string& name) {
  return std::visit(
      [](const auto& config) {
        return TextSizes{config.vocab_size, config.max_length};
      },
      find_in(published(), name, "models.pretrained_text_sizes"));
}

std::vector<std::string> pretrained_text_names() {
  return names_of(published());
}

}  // namespace ulp::models
