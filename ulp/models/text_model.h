// The base of the reference networks over text: tokens in, logits out, through one virtual forward().
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "ulp/base/export.h"

namespace ulp::models {

/// The task of a text network: the meaning of its logits.
enum class TextTask {
  language_modelling,  ///< (B, S, vocabulary): at each position, what token comes next
  classification       ///< (B, classes): of which class the whole text is
};

/// A network over tokens: int64 (B, S), each in [0, vocabulary). Parameters carry Hugging Face's names where
/// transformers has the network; each make_ function draws them from the default generator.
class ULP_API TextModel : public torch::nn::Module {
 public:
  ~TextModel() override;
  virtual TextTask task() const = 0;
  /// Logits as task() says. Throws Error for tokens of another shape or type, or more than max_length of
  /// them.
  virtual at::Tensor forward(at::Tensor tokens) = 0;
};

}  // namespace ulp::models
