#include "ulp/io/tokenizer/bert_words.h"

namespace ulp::io {

Characters BertNormalizer::apply(std::span<const Character> text) const {
  Characters out;
  out.reserve(text.size());
  for (Character character : text) {
    if (clean_text) {
      if (character.code == 0 || character.code == 0xFFFD || is_bert_control(character.code)) continue;
      if (is_space(character.code)) character.code = ' ';
    }
    if (!handle_chinese_chars || !is_ideograph(character.code)) {
      out.push_back(character);
      continue;
    }
    const Character space{' ', character.begin, character.end};
    out.insert(out.end(), {space, character, space});
  }
  if (strip_accents) out = without_accents(out);
  if (!lowercase) return out;
  Characters lowered;
  lowered.reserve(out.size());
  for (const Character& character : out) append_lower(lowered, character);
  return lowered;
}

std::vector<std::span<const Character>> bert_words(std::span<const Character> text) {
  std::vector<std::span<const Character>> words;
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (begin < end) words.push_back(text.subspan(begin, end - begin));
    begin = end + 1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_space(text[i].code)) {
      end_word(i);
    } else if (is_bert_punctuation(text[i].code)) {
      end_word(i);
      words.push_back(text.subspan(i, 1));
    }
  }
  end_word(text.size());
  return words;
}

}  // namespace ulp::io
