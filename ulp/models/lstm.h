// Long short-term memory (Hochreiter and Schmidhuber 1997) over tokens: a language model or a classifier.
#pragma once

#include <memory>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// The sizes of the network.
struct ULP_API LstmConfig {
  int64_t vocab_size = 256;
  int64_t max_length = 4096;  ///< the network takes any; this guards the memory of the backward pass
  int64_t embedding = 64;
  int64_t hidden = 128;
  int64_t layers = 1;
  double dropout = 0;          ///< between layers and before the head
  int64_t num_classes = 0;     ///< above 0: classifies; 0: predicts the next token
  int64_t padding_token = -1;  ///< classifier: positions that hold it are left out of the mean; -1: none are

  /// Throws Error naming the field.
  void validate() const;
};

/// Names: embedding.weight, lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, ..., head.weight. The
/// classifier reads the mean of the hidden states.
ULP_API std::shared_ptr<TextModel> make_lstm(const LstmConfig& config = {});

}  // namespace ulp::models
