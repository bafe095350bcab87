// Texts before WordPiece: BERT's normalizer and its words. Internal to the room.
#pragma once

#include <span>
#include <vector>

#include "ulp/io/tokenizer/characters.h"

namespace ulp::io {

/// The options of BERT's normalizer.
struct BertNormalizer {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
  Characters apply(std::span<const Character> text) const;
};
/// Words between spaces, each punctuation mark one of its own.
std::vector<std::span<const Character>> bert_words(std::span<const Character> text);

}  // namespace ulp::io
