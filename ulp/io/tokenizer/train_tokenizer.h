// Tokenizers from a text of one's own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "ulp/base/export.h"
#include "ulp/io/tokenizer/tokenizer.h"

namespace ulp {
class FieldVisitor;

namespace io {

/// What is learned of a text. Both kinds merge the pair of neighbours that is most frequent, again and again (Sennrich et al. 2016), as the
/// trainers of Hugging Face's `tokenizers` do.
struct ULP_API TokenizerTraining {
  TokenizerKind kind = TokenizerKind::byte_level_bpe;
  int64_t vocab_size =
      8192;  ///< merging ends there; special tokens and single characters are tokens in any case
  int64_t min_frequency = 2;  ///< of a pair that becomes a token
  int64_t alphabet = 1000;    ///< wordpiece: so many characters, the most frequent ones
  bool lowercase = true;      ///< wordpiece: texts are read in lower case without accents

  void visit_fields(FieldVisitor& visitor);
  /// Throws Error naming the field.
  void validate() const;
};

/// Learns from lines of UTF-8. wordpiece has the special tokens [PAD], [UNK], [CLS], [SEP] and [MASK], ids 0 to 4, and the template
/// [CLS] text [SEP]; byte_level_bpe has <|endoftext|>, id 0, and all bytes, so that it knows every text. The same text gives the same
/// tokenizer. Throws Error for a text that is no UTF-8 or has no word, and for options out of range.
ULP_API Tokenizer train_tokenizer(std::string_view text, const TokenizerTraining& options = {});
/// Trains on a file. Throws FileError for one that is missing or no text in UTF-8.
ULP_API Tokenizer train_tokenizer_on(const std::filesystem::path& path,
                                     const TokenizerTraining& options = {});

}  // namespace io
}  // namespace ulp
