// BERT (Devlin et al. 2018) with a classifier on top, as BertForSequenceClassification of transformers.
#pragma once

#include <memory>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ULP_API BertConfig {
  int64_t vocab_size = 30522;
  int64_t max_length = 512;
  int64_t width = 768;  ///< "hidden_size"
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t intermediate = 3072;  ///< width of the feed-forward part
  int64_t num_classes = 2;
  double dropout = 0.1;            ///< of embeddings, of each block's output and before the classifier
  double attention_dropout = 0.1;  ///< of attention weights; above 0 LibTorch's CPU takes its slow path
  int64_t padding_token = -1;      ///< positions that hold it are not attended to; -1: every position counts

  /// bert-base-uncased: 109,482,240 parameters below the classifier.
  static BertConfig base();
  /// bert-large-uncased: 335,141,888 parameters below the classifier.
  static BertConfig large();
  /// TinyBERT (Jiao et al. 2020) with 4 layers: 14,350,248 parameters below the classifier.
  static BertConfig tinybert4();
  /// TinyBERT with 6 layers: 66,955,008 parameters below the classifier.
  static BertConfig tinybert6();
  /// bert-tiny over bytes (2 layers of 128): trains on text files in seconds; byte 0 is padding.
  static BertConfig tiny();
  /// Throws Error naming the field.
  void validate() const;
};

/// Names: bert.embeddings.word_embeddings.weight, bert.encoder.layer.0.attention.self.query.weight,
/// bert.encoder.layer.0.output.LayerNorm.weight, bert.pooler.dense.weight, classifier.weight, ...
ULP_API std::shared_ptr<TextModel> make_bert(const BertConfig& config = {});

}  // namespace ulp::models
