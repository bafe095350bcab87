// Text as bytes, or as tokens of a tokenizer: one long text for language modelling, or labelled lines for classification.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/io/tokenizer/tokenizer.h"

namespace ulp::io {

/// Tokens are bytes where there is no tokenizer.
inline constexpr int64_t kByteVocabulary = 256;
inline constexpr int64_t kTextPadding = 0;  ///< what fills up short texts; no text holds it

/// One batch of texts.
struct TextBatch {
  at::Tensor tokens;   ///< int64 (B, S)
  at::Tensor targets;  ///< int64: the token that follows each (B, S), or classes (B)
};

/// Samples of equal length. Which ones make a batch is the caller's choice (SampleOrder).
struct ULP_API TextDataset {
  at::Tensor tokens;  ///< windows (N, S + 1), or padded texts (N, S); uint8 of bytes, int32 of a tokenizer
  at::Tensor labels;  ///< int64 (N), or undefined: the next token is to be predicted
  std::vector<std::string> class_names;  ///< one for each label; empty without labels

  int64_t size() const { return tokens.defined() ? tokens.size(0) : 0; }
  bool labelled() const { return labels.defined(); }
  int64_t length() const;  ///< S
  /// A batch of the samples of these numbers, in their order. Throws Error for a number out of range.
  TextBatch gather(std::span<const int64_t> samples) const;
};

/// The samples [begin, end), sharing memory. Throws Error for a range that is empty or outside.
ULP_API TextDataset slice(const TextDataset& dataset, int64_t begin, int64_t end);

/// Windows of length + 1 bytes (or tokens, line by line as encode_lines() has them) of a plain file, each `stride` after the one
/// before (0: `length`, so that every one is predicted once); what is left at the end is dropped. Throws FileError for a file that
/// is missing or shorter than one window, and for one that is no UTF-8 where there is a tokenizer.
ULP_API TextDataset load_text(const std::filesystem::path& path, int64_t length, int64_t stride = 0,
                              const Tokenizer* tokenizer = nullptr);

/// Lines of `label<TAB>text`, each text cut to `length` bytes or tokens, or padded; a tokenizer puts the tokens of its template around
/// each and pads with its padding(). Classes are the labels in order of
/// the alphabet, or `class_names` where given (those of the training file, for the test file). Throws
/// FileError naming the line that has no tab, no label, no text, a zero byte, or an unknown label; Error for a tokenizer without
/// padding.
ULP_API TextDataset load_labelled_text(const std::filesystem::path& path, int64_t length,
                                       const std::vector<std::string>& class_names = {},
                                       const Tokenizer* tokenizer = nullptr);

}  // namespace ulp::io
