// The parts of a tokenizer, as read from its file. Internal to the room.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ulp/io/tokenizer/added_tokens.h"
#include "ulp/io/tokenizer/bert_words.h"
#include "ulp/io/tokenizer/token_model.h"
#include "ulp/io/tokenizer/tokenizer.h"

namespace ulp::io {

/// How tokens become a text again.
struct TokenDecoder {
  enum class Kind { spaces, wordpiece, byte_level } kind = Kind::spaces;
  std::string prefix = "##";  ///< wordpiece: of pieces that join what is before them
  bool cleanup = true;        ///< wordpiece: no space before punctuation
};

/// A part of a template: tokens, or the text's own where there are none.
struct TemplatePart {
  bool text = false;
  std::vector<int64_t> ids = {};
};

struct TokenizerState {
  std::string json;
  TokenizerKind kind = TokenizerKind::wordpiece;
  TokenIds vocabulary;                             ///< of the model
  std::unordered_map<int64_t, std::string> names;  ///< of the model and the added ones
  int64_t vocab_size = 0;
  std::deque<AddedToken> added;                          ///< stays where it is
  std::unordered_map<int64_t, const AddedToken*> by_id;  ///< the added ones
  TokenFinder raw, normalized;
  std::optional<BertNormalizer> normalizer;
  bool add_prefix_space = false;
  bool splits_words = true;  ///< byte-level: by GPT-2's pattern ("use_regex")
  std::optional<std::variant<WordPiece, BytePairs>> model;
  TokenDecoder decoder;
  std::vector<TemplatePart> pattern = {{.text = true}};
  std::optional<int64_t> padding;

  TokenizerState() = default;
  TokenizerState(const TokenizerState&) = delete;  // parts of it point into it
  TokenizerState& operator=(const TokenizerState&) = delete;

  Characters normalize(std::span<const Character> text) const;
  void encode_text(std::span<const Character> text, Encoding& out) const;
};

}  // namespace ulp::io
