// Tokenizers in Hugging Face's file form, tokenizer.json: WordPiece as BERT has it, and byte-level BPE as GPT-2 has it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::io {

enum class TokenizerKind {
  wordpiece,      ///< pieces of words (Wu et al. 2016) behind BERT's normalizer and splitter
  byte_level_bpe  ///< byte pair encoding over bytes (Radford et al. 2019)
};

/// Where a token comes from: bytes [begin, end) of the text.
struct TextRange {
  int64_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

/// A text as tokens.
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<TextRange> ranges;  ///< one for each id; empty ones for tokens that a template adds
};

struct TokenizerState;

/// A tokenizer. It never changes; copies share it, and threads may use it at once. Ids equal those of Hugging Face's `tokenizers`
/// for every text in UTF-8 (bench/peers/tokenizers_check.py).
class ULP_API Tokenizer {
 public:
  /// Reads a tokenizer.json. Throws FileError for a file that is missing, damaged, larger than its limits, or holds parts that are not
  /// known here, naming them.
  static Tokenizer load(const std::filesystem::path& path);
  /// Reads a tokenizer from memory; `source` stands for the file in messages.
  static Tokenizer from_json(std::string_view text, const std::string& source = "tokenizer.json");

  /// The text that it was made from.
  const std::string& to_json() const;
  /// Writes it, atomically. Throws Error where AtomicFile does.
  void save(const std::filesystem::path& path) const;

  TokenizerKind kind() const;
  /// The largest id and 1: the rows of an embedding.
  int64_t vocab_size() const;

  /// The tokens of a text; `special` puts those around it that the file's template names ([CLS], [SEP]). The file's truncation and padding do
  /// not count: with `most` above 0 the end of the text is cut so that there are at most so many tokens, template included. Throws Error for
  /// a text that is no UTF-8, naming the byte, and for a `most` that the template alone exceeds.
  Encoding encode(std::string_view text, bool special = true, int64_t most = 0) const;

  /// A text for these ids as Hugging Face's decoders make it, in UTF-8 with U+FFFD for bytes that are none. Ids that name no token are
  /// left out, as are special tokens unless `special`.
  std::string decode(std::span<const int64_t> ids, bool special = false) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  /// As it stands in the vocabulary: "##ing", "Ġthe".
  std::optional<std::string> token_of(int64_t id) const;
  /// The token that fills up short texts: the pad_id of the file's padding, else [PAD], <pad> or
  /// <|endoftext|>.
  std::optional<int64_t> padding() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerState> state);
  std::shared_ptr<const TokenizerState> state_;
};

/// The ids of a text, line by line (a line and its end belong together), without tokens of templates: a long text in little memory.
/// Throws as Tokenizer::encode().
ULP_API std::vector<int64_t> encode_lines(const Tokenizer& tokenizer, std::string_view text);

}  // namespace ulp::io

template <>
struct ulp::EnumNames<ulp::io::TokenizerKind> {
  static constexpr std::array<Word<io::TokenizerKind>, 2> list = {
      {{io::TokenizerKind::wordpiece, "wordpiece", "pieces of words, as BERT has them"},
       {io::TokenizerKind::byte_level_bpe, "bpe", "byte pairs, as GPT-2 has them"}}};
};
