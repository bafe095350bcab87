// DistilBERT (Sanh et al. 2019) with a classifier on top, as DistilBertForSequenceClassification of transformers.
#pragma once

#include <memory>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ULP_API DistilBertConfig {
  int64_t vocab_size = 30522;
  int64_t max_length = 512;
  int64_t width = 768;          ///< "dim"
  int64_t layers = 6;           ///< "n_layers"
  int64_t heads = 12;           ///< "n_heads"
  int64_t intermediate = 3072;  ///< "hidden_dim"
  int64_t num_classes = 2;
  double dropout = 0.1;             ///< of embeddings and feed-forward parts
  double attention_dropout = 0.1;   ///< of attention weights; above 0 LibTorch's CPU takes its slow path
  double classifier_dropout = 0.2;  ///< "seq_classif_dropout"
  int64_t padding_token = -1;       ///< positions that hold it are not attended to; -1: every position counts

  /// distilbert-base-uncased: 66,362,880 parameters below the classifier's two layers.
  static DistilBertConfig base();
  /// Over bytes (2 layers of 128): trains on text files in seconds; byte 0 is padding.
  static DistilBertConfig tiny();
  /// Throws Error naming the field.
  void validate() const;
};

/// Names: distilbert.embeddings.word_embeddings.weight, distilbert.transformer.layer.0.attention.q_lin.weight,
/// distilbert.transformer.layer.0.ffn.lin1.weight, pre_classifier.weight, classifier.weight, ...
ULP_API std::shared_ptr<TextModel> make_distilbert(const DistilBertConfig& config = {});

}  // namespace ulp::models
