#include "ulp/io/tokenizer/added_tokens.h"

namespace ulp::io {

namespace {

uint64_t edge(uint32_t node, char32_t code) {
  return uint64_t{node} << 32 | code;
}

bool touches_word(std::span<const Character> text, size_t begin, size_t end) {
  return (begin > 0 && is_word_character(text[begin - 1].code)) ||
         (end < text.size() && is_word_character(text[end].code));
}

}  // namespace

void TokenFinder::add(std::span<const Character> content, const AddedToken& token) {
  if (content.empty()) return;
  uint32_t node = 0;
  for (const Character& character : content) {
    const auto [found, fresh] = edges_.try_emplace(edge(node, character.code), nodes_);
    if (fresh) ++nodes_;
    node = found->second;
  }
  ends_.try_emplace(node, &token);
}

TokenFinder::Match TokenFinder::longest_at(std::span<const Character> text) const {
  Match match;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i].code));
    if (next == edges_.end()) break;
    node = next->second;
    const auto end = ends_.find(node);
    if (end != ends_.end()) match = {end->second, i + 1};
  }
  return match;
}

std::vector<TextPart> TokenFinder::split(std::span<const Character> text) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Match match = longest_at(text.subspan(at));
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match.length;
    at = end;
    if (match.token->single_word && touches_word(text, begin, end)) continue;
    if (match.token->lstrip)
      while (begin > done && is_space(text[begin - 1].code)) --begin;
    if (match.token->rstrip)
      while (end < text.size() && is_space(text[end].code)) ++end;
    if (done < begin) parts.push_back({text.subspan(done, begin - done)});
    parts.push_back({text.subspan(begin, end - begin), match.token});
    at = done = end;
  }
  if (done < text.size()) parts.push_back({text.subspan(done)});
  return parts;
}

}  // namespace ulp::io
