// The reference text networks by name, in sizes that train on a text file in minutes; beside registry.h,
// which has those over images.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/models/text_model.h"

namespace ulp::models {

/// The properties of the text that a network needs. The defaults are those of bytes.
struct TextModelOptions {
  TextTask task = TextTask::language_modelling;
  int64_t vocab_size = 256;
  int64_t max_length = 256;    ///< the longest text in tokens
  int64_t num_classes = 2;     ///< classification only
  int64_t padding_token = -1;  ///< classification: what short texts are filled up with; -1: nothing
};

/// Throws Error for a name that text_model_names() does not list, for a task that the network does not do,
/// and for options that it cannot have. Full sizes: make_pretrained_text().
ULP_API std::shared_ptr<TextModel> make_text_model(const std::string& name,
                                                   const TextModelOptions& options = {});

/// Sorted.
ULP_API std::vector<std::string> text_model_names();

/// The tasks of the network of that name: classify texts, predict the next token, or both. Throws Error for
/// an unknown name.
ULP_API std::vector<TextTask> text_model_tasks(const std::string& name);

/// A network at a size that was published, over the tokens of its own vocabulary: bert-base, bert-large,
/// distilbert-base, tinybert-4, tinybert-6 (with two classes), gpt2-small, gpt2-medium. Throws Error for another name.
ULP_API std::shared_ptr<TextModel> make_pretrained_text(const std::string& name);

/// The sizes of the inputs of such a network.
struct TextSizes {
  int64_t vocab_size = 0, max_length = 0;
};
/// Throws Error for a name that pretrained_text_names() does not list.
ULP_API TextSizes pretrained_text_sizes(const std::string& name);

/// Sorted.
ULP_API std::vector<std::string> pretrained_text_names();

}  // namespace ulp::models
