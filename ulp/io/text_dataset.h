// Text as bytes: one long text for language modelling, or labelled lines for classification.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::io {

/// Tokens are bytes.
inline constexpr int64_t kByteVocabulary = 256;
inline constexpr int64_t kTextPadding = 0;  ///< what fills up short texts; no text holds it

/// One batch of texts.
struct TextBatch {
  at::Tensor tokens;   ///< int64 (B, S)
  at::Tensor targets;  ///< int64: the byte that follows each (B, S), or classes (B)
};

/// Samples of equal length. Which ones make a batch is the caller's choice (SampleOrder).
struct ULP_API TextDataset {
  at::Tensor bytes;                      ///< uint8: windows (N, S + 1), or padded texts (N, S)
  at::Tensor labels;                     ///< int64 (N), or undefined: the next byte is to be predicted
  std::vector<std::string> class_names;  ///< one for each label; empty without labels

  int64_t size() const { return bytes.defined() ? bytes.size(0) : 0; }
  bool labelled() const { return labels.defined(); }
  int64_t length() const;  ///< S
  /// A batch of the samples of these numbers, in their order. Throws Error for a number out of range.
  TextBatch gather(std::span<const int64_t> samples) const;
};

/// The samples [begin, end), sharing memory. Throws Error for a range that is empty or outside.
ULP_API TextDataset slice(const TextDataset& dataset, int64_t begin, int64_t end);

/// Windows of length + 1 bytes of a plain file, each `stride` bytes after the one before (0: `length`, so
/// that every byte is predicted once); what is left at the end is dropped. Throws FileError for a file that
/// is missing or shorter than one window.
ULP_API TextDataset load_text(const std::filesystem::path& path, int64_t length, int64_t stride = 0);

/// Lines of `label<TAB>text`, each text cut to `length` bytes or padded. Classes are the labels in order of
/// the alphabet, or `class_names` where given (those of the training file, for the test file). Throws
/// FileError naming the line that has no tab, no label, no text, a zero byte, or an unknown label.
ULP_API TextDataset load_labelled_text(const std::filesystem::path& path, int64_t length,
                                       const std::vector<std::string>& class_names = {});

}  // namespace ulp::io
