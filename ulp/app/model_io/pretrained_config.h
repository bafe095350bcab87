// config.json of Hugging Face's transformers: which network a folder of published weights holds, and how
// large.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ulp/models/bert.h"
#include "ulp/models/decoder.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/gpt2.h"

namespace ulp::app {

/// What such a file says.
struct PublishedConfig {
  std::string
      name;  ///< the file's model_type: bert (TinyBERT among them), distilbert, gpt2, llama, qwen2, ...
  std::variant<models::BertConfig, models::DistilBertConfig, models::Gpt2Config, models::DecoderConfig>
      network;
  std::vector<std::string>
      class_names;          ///< of a classifier; empty where they are the ones that transformers makes up
  int64_t positions = 0;    ///< of a decoder: the longest text that its rotary embeddings are for
  bool classifies = false;  ///< the weights have a classifier: an architecture "...ForSequenceClassification"

  bool writes() const;  ///< it predicts the next token
  int64_t vocab_size() const;
  int64_t max_length() const;
  /// Elements of the tensors that grow with the sizes: tables and layers.
  int64_t elements() const;
  std::shared_ptr<models::TextModel> make() const;
};

/// Reads one. Throws FileError naming the file for one that is missing or damaged, a network that the models
/// room does not have, sizes out of range, and settings that would compute something else (an activation,
/// relative positions, a feed-forward part of another width).
ULP_API PublishedConfig read_published_config(const std::filesystem::path& path);

}  // namespace ulp::app
