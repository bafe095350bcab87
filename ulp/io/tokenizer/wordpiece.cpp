#include <algorithm>

#include "ulp/io/tokenizer/token_model.h"

namespace ulp::io {

WordPiece::WordPiece(const TokenIds& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  for (const auto& [token, id] : vocabulary) longest_piece_ = std::max(longest_piece_, token.size());
}

void WordPiece::encode(std::span<const Character> word, Encoding& out) const {
  if (word.empty()) return;
  const TextRange whole{word.front().begin, word.back().end};
  const auto unknown = [&](size_t kept) {
    out.ids.resize(kept);
    out.ranges.resize(kept);
    out.ids.push_back(options_.unknown);
    out.ranges.push_back(whole);
  };
  const size_t before = out.ids.size();
  if (static_cast<int64_t>(word.size()) > options_.longest_word) return unknown(before);
  std::string piece;
  std::vector<size_t> ends;  // bytes of `piece` behind each of its characters
  for (size_t begin = 0; begin < word.size();) {
    piece = begin > 0 ? options_.prefix : "";
    ends.clear();
    for (size_t i = begin; i < word.size() && piece.size() <= longest_piece_; ++i) {
      append_utf8(piece, word[i].code);
      ends.push_back(piece.size());
    }
    std::optional<int64_t> id;
    for (; !ends.empty(); ends.pop_back())
      if ((id = find_id(vocabulary_, std::string_view(piece).substr(0, ends.back())))) break;
    if (!id) return unknown(before);
    out.ids.push_back(*id);
    out.ranges.push_back({word[begin].begin, word[begin + ends.size() - 1].end});
    begin += ends.size();
  }
}

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
