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

}  // namespace ulp::io
